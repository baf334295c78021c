"""Laws of privacy losses: what every trade-off curve is made of."""
