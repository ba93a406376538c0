"""Training programs for the ranges added to them."""

import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.b(self.a(x).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h, self.out = nn.ModuleList([Block(), Block()]), nn.Linear(8, 1)

    def forward(self, x):
        for block in self.h:
            x = block(x)
        return self.out(x)


def loader(rows=8, workers=0):
    data = torch.utils.data.TensorDataset(torch.randn(rows, 8))
    return torch.utils.data.DataLoader(data, batch_size=4, num_workers=workers)


def train(net, optimizer, epochs=1, workers=0, every=1):
    for _ in range(epochs):
        for number, (x,) in enumerate(loader(workers=workers)):
            net(x).sum().backward()
            if number % every == every - 1:
                optimizer.step()
                optimizer.zero_grad()


def plain():
    net = Net()
    train(net, torch.optim.AdamW(net.parameters()))


def accumulation():
    net = Net()
    train(net, torch.optim.SGD(net.parameters(), 0.1), epochs=2, every=2)


def workers():
    net = Net()
    train(net, torch.optim.SGD(net.parameters(), 0.1), workers=2)


def evaluation():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        train(net.train(), optimizer)
        net.eval()
        with torch.no_grad():
            for (x,) in loader():
                net(x)


def two_optimizers():
    critic, generator = Net(), nn.Linear(8, 8)
    of_critic = torch.optim.Adam(critic.parameters())
    of_generator = torch.optim.Adam(generator.parameters())
    for _ in range(3):
        of_critic.zero_grad()
        critic(generator(torch.randn(4, 8)).detach()).sum().backward()
        of_critic.step()
        of_generator.zero_grad()
        critic(generator(torch.randn(4, 8))).sum().backward()
        of_generator.step()


def error_in_forward():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for size in (8, 7, 8):
        try:
            net(torch.randn(4, size)).sum().backward()
            optimizer.step()
        except RuntimeError:
            print("caught")


def optimizer_in_backward():
    net = nn.Linear(8, 1)
    optimizers = {p: torch.optim.SGD([p], 0.1) for p in net.parameters()}
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    for _ in range(3):
        net(torch.randn(4, 8)).sum().backward()


def checkpointed():
    from torch.utils.checkpoint import checkpoint

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net.h[0].forward_plain, plain_forward = None, net.h[0].forward
    net.h[0].forward = lambda x: checkpoint(plain_forward, x, use_reentrant=True)
    net(torch.randn(4, 8, requires_grad=True)).sum().backward()
    optimizer.step()


def other_thread():
    import threading

    thread = threading.Thread(target=plain)
    thread.start()
    thread.join()


def closure():
    net = Net()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=1)

    def loss():
        optimizer.zero_grad()
        value = net(torch.ones(4, 8)).square().sum()
        value.backward()
        return value

    optimizer.step(loss)


def generation():
    net = Net().eval()
    with torch.no_grad():
        for _ in range(3):
            net(torch.ones(4, 8))


def layer_by_layer():
    layers = [nn.Linear(8, 8) for _ in range(200)]
    optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], 0.1)
    x = torch.ones(4, 8)
    for layer in layers:
        x = layer(x)
    x.sum().backward()
    optimizer.step()


def recurrent():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, x):
            for _ in range(300):
                x = self.cell(x)
            return self.out(x)

    net = Recurrent().eval()
    with torch.no_grad():
        for _ in range(2):
            net(torch.ones(4, 8))


def wrapped():
    net = torch.compile(Net(), backend="eager")
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net(torch.ones(4, 8)).sum().backward()
    optimizer.step()


PROGRAMS = (
    *(plain, accumulation, workers, evaluation, two_optimizers, error_in_forward),
    *(optimizer_in_backward, checkpointed, other_thread, closure, generation),
    *(layer_by_layer, recurrent, wrapped),
)
