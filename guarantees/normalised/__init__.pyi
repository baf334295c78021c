from guarantees.normalised.bounds import clt_bound as clt_bound
from guarantees.normalised.bounds import normalised_guarantee as normalised_guarantee
from guarantees.normalised.bounds import round_upper_bound as round_upper_bound
from guarantees.normalised.revealed_size import revealed_round as revealed_round
from guarantees.normalised.round import normalised_round as normalised_round
from guarantees.normalised.variance_pair import variance_pair as variance_pair
