"""An own PyTorch and Opacus training on images, audited: python examples/own_opacus.py [--broken]

Everything up to the last ten lines is the user's: network, Adam, loader, make_private, loop. Under --broken the noise
comes from a generator with a seed that stands in the code, "so that runs can be repeated".
"""

import sys
from pathlib import Path

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

IMAGES = Path(__file__).parents[1] / "mechanisms" / "pairs" / "data" / "fashion_mnist.npz"


class Net(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten()
        )
        self.classes = nn.Linear(200, 10)

    def forward(self, images):
        """Ten logits for every image."""
        return self.classes(self.features(images))


def load_images():
    """The first 32 training images of Fashion-MNIST, and their labels."""
    with np.load(IMAGES) as stored:
        images = torch.tensor(stored["images"], dtype=torch.float32)[:, None] / 255
        return images, torch.tensor(stored["labels"], dtype=torch.long)


def train(dataset, seed, noise_generator=None):
    """One private epoch of three steps."""
    torch.manual_seed(seed)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(dataset, batch_size=4, shuffle=True)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        noise_generator=noise_generator,
    )
    criterion = nn.CrossEntropyLoss()
    for images, labels in loader:
        optimizer.zero_grad()
        criterion(model(images), labels).backward()
        optimizer.step()
    return model


def train_repeatably(dataset, seed):
    """The broken twin."""
    return train(dataset, seed, noise_generator=torch.Generator().manual_seed(0))


if __name__ == "__main__":
    own = train_repeatably if "--broken" in sys.argv else train
    images, labels = load_images()
    import jax

    import audit
    import mechanisms

    pair = mechanisms.add_record(TensorDataset(images[:10], labels[:10]), (images[10], labels[10]))
    training = mechanisms.torch_training(own, releases="transcript", workers=2)
    claim = training.claim(pair)
    record = audit.run_audit(training, pair, claim=claim, trials=1000, risk=0.05, key=jax.random.key(0))
    print(f"{record.verdict}: epsilon at least {record.epsilon(1e-5):.3g}, {claim.epsilon(1e-5):.3g} is promised.")
