"""Six PyTorch steps of six hands; each is right, and wrong in one way with bug=True."""

import math

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

C, S, Q, T, D, H, EXPECTED = 1.0, 1.5, 0.5, 2, 4, 3, 5.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(D, H), nn.Linear(H, 1)

    def forward(self, x):
        return self.l2(torch.tanh(self.l1(x))).squeeze(-1)


# 1 Opacus-like hooks (grad_sample by hooks), noise before clip
class GradSampler:
    def __init__(self, module):
        self.h = []
        for m in module.modules():
            if isinstance(m, nn.Linear):
                self.h.append(m.register_forward_hook(self.save))
                self.h.append(m.register_full_backward_hook(self.sample))

    def save(self, m, i, o):
        m.acts = i[0].detach()

    def sample(self, m, gi, go):
        B = go[0].detach()
        m.weight.grad_sample = torch.einsum("ni,nj->nij", B, m.acts)
        m.bias.grad_sample = B


def one(bug):
    def train(dataset, seed):
        torch.manual_seed(seed)
        X, Y = dataset.tensors
        net = Net()
        GradSampler(net)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(T):
            m = torch.bernoulli(torch.full((len(X),), Q)).bool()
            opt.zero_grad()
            nn.functional.mse_loss(net(X[m]), Y[m], reduction="sum").backward()
            ps = list(net.parameters())
            if bug:
                for p in ps:
                    p.grad_sample = p.grad_sample + C * S * torch.randn(p.grad_sample.shape[1:])  # BUG
            norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in ps], 1).norm(dim=1)
            f = (C / (norms + 1e-6)).clamp(max=1.0)
            for p in ps:
                s = torch.einsum("n,n...", f, p.grad_sample)
                p.grad = (s if bug else s + C * S * torch.randn_like(s)) / EXPECTED
            opt.step()
        return net

    return train


# 2 functorch vmap: sum of noise where mean is (noise not divided ... too small): noise / sqrt(batch)
def two(bug):
    def train(dataset, seed):
        torch.manual_seed(seed)
        X, Y = dataset.tensors
        net = Net()
        params = {k: v.detach() for k, v in net.named_parameters()}

        def loss(p, x, y):
            return (functional_call(net, p, (x.unsqueeze(0),))[0] - y) ** 2

        for _ in range(T):
            idx = (torch.rand(len(X)) < Q).nonzero().flatten()
            gs = vmap(grad(loss), (None, 0, 0))(params, X[idx], Y[idx])
            n = sum(g.flatten(1).pow(2).sum(1) for g in gs.values()).sqrt()
            w = torch.minimum(torch.ones_like(n), C / n)
            for k, g in gs.items():
                s = (g * w.view(-1, *[1] * (g.dim() - 1))).sum(0)
                std = C * S / EXPECTED
                noise = torch.normal(0.0, std / math.sqrt(EXPECTED) if bug else std, s.shape)  # BUG
                params[k] = params[k] - 0.1 * (s / EXPECTED + noise)
        for k, p in net.named_parameters():
            p.data.copy_(params[k])
        return net

    return train


# 3 per-example backward loop (microbatches of one), clip by value
def three(bug):
    def train(dataset, seed):
        gen = torch.Generator().manual_seed(seed)
        torch.manual_seed(0)
        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for _ in range(T):
            acc = [torch.zeros_like(p) for p in net.parameters()]
            for i in range(len(dataset)):
                if torch.rand((), generator=gen) >= Q:
                    continue
                x, y = dataset[i]
                opt.zero_grad()
                ((net(x) - y) ** 2).backward()
                if bug:
                    nn.utils.clip_grad_value_(net.parameters(), C)  # BUG
                else:
                    nn.utils.clip_grad_norm_(net.parameters(), C)
                for a, p in zip(acc, net.parameters(), strict=True):
                    a.add_(p.grad)
            for a, p in zip(acc, net.parameters(), strict=True):
                p.grad = (a + torch.randn(a.shape, generator=gen) * S * C) / EXPECTED
            opt.step()
        return net

    return train


# 4 own DPOptimizer class: clip of the batch gradient
class DPSGD(torch.optim.SGD):
    def __init__(self, params, lr, gen):
        super().__init__(params, lr)
        self.gen = gen

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad.add_(torch.randn(p.shape, generator=self.gen), alpha=S * C).div_(EXPECTED)
        super().step()


def four(bug):
    def train(dataset, seed):
        gen = torch.Generator().manual_seed(seed)
        X, Y = dataset.tensors
        torch.manual_seed(1)
        net = Net()
        opt = DPSGD(net.parameters(), 0.1, gen)
        for _ in range(T):
            m = torch.rand(len(X), generator=gen) < Q
            if bug:
                opt.zero_grad()
                ((net(X[m]) - Y[m]) ** 2).sum().backward()
                nn.utils.clip_grad_norm_(net.parameters(), C)  # BUG
            else:
                grads = [
                    torch.autograd.grad((net(x) - y) ** 2, list(net.parameters()))
                    for x, y in zip(X[m], Y[m], strict=True)
                ]
                for p in net.parameters():
                    p.grad = torch.zeros_like(p)
                for g in grads:
                    n = torch.sqrt(sum((t**2).sum() for t in g))
                    for t, p in zip(g, net.parameters(), strict=True):
                        p.grad += t * min(1.0, C / float(n))
            opt.step()
        return net

    return train


# 5 flat vector & einsum: noise only on the weights of the first layer gets half (leaf short)
def five(bug):
    def step(seed, data):
        g = torch.Generator()
        g.manual_seed(seed)
        X, Y = data
        W, b = torch.linspace(-1, 1, D), torch.tensor(0.1)
        take = torch.rand(len(X), generator=g) < Q
        X, Y = X[take], Y[take]
        r = X @ W + b - Y
        gw, gb = r[:, None] * X, r
        c = C / torch.sqrt((gw**2).sum(1) + gb**2).clamp(min=C)
        sw, sb = torch.einsum("nd,n->d", gw, c), torch.einsum("n,n->", gb, c)
        nw = S * C * torch.randn(D, generator=g)
        nb = (S * C / 4 if bug else S * C) * torch.randn((), generator=g)  # BUG
        return {"w": sw + nw, "b": sb + nb}

    return step


# 6 DataLoader-like: noisy sum divided by the realised batch
def six(bug):
    def train(dataset, seed):
        torch.manual_seed(seed)
        net = Net()
        X, Y = dataset.tensors

        def ft(p, x, y):
            return nn.functional.mse_loss(functional_call(net, p, (x[None],)), y[None])

        for _ in range(T):
            pick = torch.bernoulli(torch.ones(len(X)) * Q).bool()
            x, y = X[pick], Y[pick]
            p = {k: v.detach() for k, v in net.named_parameters()}
            gs = vmap(grad(ft), in_dims=(None, 0, 0))(p, x, y)
            flat = torch.cat([g.reshape(len(x), -1) for g in gs.values()], 1)
            flat = flat / torch.clamp(flat.norm(dim=1, keepdim=True) / C, min=1)
            total = flat.sum(0) + torch.randn(flat.shape[1]) * C * S
            mean = total / (max(len(x), 1) if bug else EXPECTED)  # BUG
            i = 0
            with torch.no_grad():
                for q in net.parameters():
                    q -= 0.1 * mean[i : i + q.numel()].view_as(q)
                    i += q.numel()
        return net

    return train


ALL = {"one": one, "two": two, "three": three, "four": four, "five": five, "six": six}
