# tests/libraries/use_skorch.py: skorch's NeuralNetClassifier, which compiles by an argument.
import torch
from torch import nn

from tests.libraries.harness import STEPS, Side, Tensors, parameters, program


@program("skorch", "NeuralNetClassifier: fit, predict_proba")
def classifier(side: Side) -> Tensors:
    import numpy
    from skorch import NeuralNetClassifier

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    random = numpy.random.default_rng(0)
    x, y = random.standard_normal((16, 8)).astype("float32"), random.integers(0, 3, 16)
    compiles = {"compile": True, "compile__backend": "ocl"} if side.backend else {}
    # With compile=True, skorch compiles the criterion too, and then does not recognise NLLLoss, its default.
    settings = {"max_epochs": STEPS, "lr": 0.1, "batch_size": 16, "train_split": None, "iterator_train__shuffle": False}
    settings |= {"criterion": nn.CrossEntropyLoss, "predict_nonlinearity": None, "verbose": 0, "device": side.device}
    net = NeuralNetClassifier(Net, **settings, **compiles)
    net.fit(x, y)
    losses = torch.tensor(net.history[:, "train_loss"])
    return [torch.from_numpy(net.predict_proba(x)), losses, *parameters(net.module_)]
