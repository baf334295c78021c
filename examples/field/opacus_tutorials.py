"""Opacus's tutorials and examples as shipped: their call of the engine, loader, optimizer, loop and numbers.

Sources: github.com/pytorch/opacus at 4d0ebc8, tutorials/*.ipynb and examples/*.py. Data are synthetic and of the right
shape. A network that takes seconds a step is a linear layer here, and pretrained transformers are small ones with
random weights; what clips, draws and divides is Opacus's. A row's first value says which of two records it is.
"""

import math
import warnings

import torch
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.layers import DPLSTM
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

warnings.simplefilter("ignore")
torch.set_num_threads(1)
MADE = {}


def _once(name, rows, make):
    """Made once for each side: what is public (weights, noise multiplier) is the same in every trial."""
    key = (name, rows.tobytes())
    if key not in MADE:
        torch.manual_seed(0)
        MADE[key] = make(rows)
    return MADE[key]


def _trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def _gradient(model):
    return torch.cat([p.grad.flatten() for p in _trained(model)]).numpy().copy()


def _direction(model, loss):
    """The common record's gradient at the start, of length 1: public."""
    loss.backward()
    found = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in _trained(model)])
    model.zero_grad(set_to_none=True)
    return (found / found.norm()).numpy()


def _two(gradient, direction):
    """Of a noisy gradient: its part along the common record's, and the logarithm of the length of the rest."""
    along = float(gradient @ direction)
    return [along, math.log(float(((gradient - along * direction) ** 2).sum()))]


def _labels(rows):
    return torch.tensor((rows[:, 0] > 0).astype("int64"))


def _advanced(rows):
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 2))
    data = TensorDataset(torch.tensor(rows), _labels(rows))
    direction = _direction(model, torch.nn.functional.cross_entropy(model(data[:1][0]), data[:1][1]))
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=10),
        max_grad_norm=1.0,
        noise_multiplier=1.0,
    )
    return (*made, direction)


def advanced_features(seed, rows):
    """intro_to_advanced_features.ipynb, cells 4 and 9: SampleNet, batches of 10; one step."""
    model, optimizer, loader, direction = _once("advanced", rows, _advanced)
    torch.manual_seed(seed % 2**63)
    data, target = next(iter(loader))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data), target).backward()
    optimizer.pre_step()
    return _two(_gradient(model), direction)


class Images(Dataset):
    """So many images like the first row, and the others of the rows."""

    def __init__(self, rows, alike, shape=(3, 32, 32)):
        self.images, self.labels = torch.tensor(rows).reshape(-1, *shape), _labels(rows)
        self.alike = alike

    def __len__(self):
        return self.alike + len(self.images) - 1

    def __getitem__(self, index):
        which = max(0, index - self.alike + 1)
        return self.images[which], self.labels[which]


def _images(rows, alike):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    data = Images(rows, alike)
    direction = _direction(model, torch.nn.functional.cross_entropy(model(data.images[:1]), data.labels[:1]))
    parts = {
        "module": model,
        "optimizer": torch.optim.RMSprop(model.parameters(), lr=1e-3),
        "data_loader": DataLoader(data, batch_size=512),
        "max_grad_norm": 1.2,
    }
    if "noise" in MADE:  # the search takes half a minute, and both sides have the same sample rate
        return (*PrivacyEngine().make_private(noise_multiplier=MADE["noise"], **parts), direction)
    made = PrivacyEngine().make_private_with_epsilon(epochs=20, target_epsilon=50.0, target_delta=1e-5, **parts)
    MADE["noise"] = made[1].noise_multiplier
    return (*made, direction)


def _image_step(seed, rows, alike):
    """building_image_classifier.ipynb, cells 5 to 29: one logical batch of 512 in physical ones of 128."""
    model, optimizer, loader, direction = _once(alike, rows, lambda made: _images(made, alike))
    torch.manual_seed(seed % 2**63)
    begun = {name: value.clone() for name, value in model.state_dict().items()}
    taken = []
    optimizer.attach_step_hook(lambda _: taken.append(_gradient(model)))
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=128, optimizer=optimizer) as batches:
        for images, target in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), target).backward()
            optimizer.step()
            if taken:
                break
    model.load_state_dict(begun)
    optimizer.zero_grad()
    return _two(taken[0], direction)


def image_classifier(seed, rows):
    """CIFAR10's 50,000 records, or one more."""
    return _image_step(seed, rows, 50_000)


def image_classifier_77_more(seed, rows):
    """The same with 77 more records: there int(N / 98) changes with one record."""
    return _image_step(seed, rows, 50_077)


class Names(torch.nn.Module):
    """CharNNClassifier of building_lstm_name_classifier.ipynb, cell 22, with 4 and 8 units for 64 and 128."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(259, 4)
        self.lstm = DPLSTM(4, 8, batch_first=True)
        self.out_layer = torch.nn.Linear(8, 18)

    def forward(self, letters):
        return self.out_layer(self.lstm(self.embedding(letters))[0][:, -1, :])


def _names(rows):
    model, data = Names(), Images(rows, 16_059, shape=(1,))
    # a name is the same twelve letters for all; the label is what differs
    data.images = (torch.arange(12) * 20).expand(len(rows), 12)
    direction = _direction(model, torch.nn.functional.cross_entropy(model(data.images[:1]), data.labels[:1]))
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=2.0),
        data_loader=DataLoader(data, batch_size=800),
        max_grad_norm=1.5,
        noise_multiplier=0.89141845703125,
    )
    return (*made, direction)


def name_classifier(seed, rows):
    """building_lstm_name_classifier.ipynb, cells 11 to 27: 16,059 names, or one more, in batches of 800; one step.

    The noise is what its make_private_with_epsilon finds for epsilon 12 at delta 8e-5 in 50 epochs.
    """
    model, optimizer, loader, direction = _once("names", rows, _names)
    torch.manual_seed(seed % 2**63)
    letters, target = next(iter(loader))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(letters), target).backward()
    optimizer.pre_step()
    return _two(_gradient(model), direction)


def _distributed(rows, alike):
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model, data = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)), Images(rows, alike, (1, 28, 28))
    direction = _direction(model, torch.nn.functional.cross_entropy(model(data.images[:1]), data.labels[:1]))
    model = DifferentiallyPrivateDistributedDataParallel(model)
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0),
        data_loader=DataLoader(data, batch_size=200),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    return (*made, direction)


def _distributed_step(seed, rows, alike):
    """ddp_tutorial.ipynb, cells 6 to 13: DPDDP, batches of 200, in one process with gloo; one step."""
    model, optimizer, loader, direction = _once(("ddp", alike), rows, lambda made: _distributed(made, alike))
    torch.manual_seed(seed % 2**63)
    images, target = next(iter(loader))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), target).backward()
    optimizer.pre_step()
    optimizer.reduce_gradients()
    return _two(_gradient(model), direction)


def distributed(seed, rows):
    """MNIST's 60,000 records, or one more: 300 or 301 batches, so that rate and divisor change."""
    return _distributed_step(seed, rows, 60_000)


def distributed_fewer(seed, rows):
    """59,900 records or one more: 300 batches and the divisor 199 for both."""
    return _distributed_step(seed, rows, 59_900)


def _reviews(rows, poisson):
    model = torch.nn.Linear(rows.shape[1], 1, bias=False)
    return PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.02),
        data_loader=DataLoader(TensorDataset(torch.tensor(rows)), batch_size=64, shuffle=True),
        noise_multiplier=0.56,
        max_grad_norm=1.0,
        poisson_sampling=poisson,
    )


def _epoch(seed, rows, poisson):
    model, optimizer, loader = _once(poisson, rows, lambda made: _reviews(made, poisson))
    torch.manual_seed(seed % 2**63)
    seen = []
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        seen.append(float(_gradient(model)[0]))
    return seen


def reviews(seed, rows):
    """examples/imdb.py:275, whose loader shuffles and whose engine is told poisson_sampling=False; one epoch."""
    return _epoch(seed, rows, poisson=False)


def reviews_poisson(seed, rows):
    return _epoch(seed, rows, poisson=True)


def _tokens(rows):
    ids = torch.arange(128).expand(len(rows), 128) % 90 + 1
    return TensorDataset(ids, torch.ones_like(ids), _labels(rows))


def _common(model, data):
    ids, mask, target = data[:1]
    return _direction(
        model, torch.nn.functional.cross_entropy(model(input_ids=ids, attention_mask=mask).logits, target)
    )


def _adapted(model, rank):
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(task_type="SEQ_CLS", inference_mode=False, r=rank, lora_alpha=32, lora_dropout=0.05)
    return get_peft_model(model, lora).train()


def _text(rows):
    from transformers import BertConfig, BertForSequenceClassification

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = _adapted(BertForSequenceClassification(BertConfig(vocab_size=100, num_labels=3, **small)), 32)
    data = _tokens(rows)
    direction = _common(model, data)
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=5e-4, eps=1e-8),
        data_loader=DataLoader(data, batch_size=32),
        criterion=torch.nn.CrossEntropyLoss(reduction="mean"),
        noise_multiplier=0.4,
        max_grad_norm=0.1,
        grad_sample_mode="ghost",
    )
    return (*made, direction)


def text_classifier(seed, rows):
    """building_text_classifier.ipynb, cells 45 to 50: LoRA of rank 32, ghost clipping; one step.

    'For the default settings, this will set noise_multiplier to about 0.4' (cell 30).
    """
    model, optimizer, criterion, loader, direction = _once("text", rows, _text)
    torch.manual_seed(seed % 2**63)
    ids, mask, target = next(iter(loader))
    optimizer.zero_grad()
    criterion(model(input_ids=ids, attention_mask=mask).logits, target).backward()
    optimizer.pre_step()
    return _two(_gradient(model), direction)


def _llama(rows):
    from transformers import LlamaConfig, LlamaForSequenceClassification

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = LlamaConfig(vocab_size=100, num_labels=3, pad_token_id=0, num_key_value_heads=2, **small)
    model = _adapted(LlamaForSequenceClassification(config), 16)
    data = _tokens(rows)
    direction = _common(model, data)
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-5),
        data_loader=DataLoader(data, batch_size=32, sampler=DistributedSampler(data, num_replicas=1, rank=0)),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
        criterion=torch.nn.CrossEntropyLoss(),
        poisson_sampling=False,
    )
    return (*made, direction)


def llama(seed, rows):
    """examples/fsdp_llama3.py:174, LoRA with poisson_sampling=False and a DistributedSampler; one epoch on one device.

    Of each step's noisy gradient the part along the common record's gradient.
    """
    model, optimizer, criterion, loader, direction = _once("llama", rows, _llama)
    torch.manual_seed(seed % 2**63)
    seen = []
    for ids, mask, target in loader:
        optimizer.zero_grad()
        criterion(model(input_ids=ids, attention_mask=mask).logits, target).backward()
        optimizer.step()
        seen.append(float(_gradient(model) @ direction))
    return seen
