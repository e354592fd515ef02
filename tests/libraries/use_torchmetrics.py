# tests/libraries/use_torchmetrics.py: metrics of torchmetrics on tensors of the device, beside a training loop.
import torch
from torch import nn

from tests.libraries.harness import Side, Tensors, program, steps_of


@program("torchmetrics", "accuracy, F1, AUROC, confusion matrix, R2 on the device, op by op")
def metrics(side: Side) -> Tensors:
    from torchmetrics import MetricCollection
    from torchmetrics.classification import (
        MulticlassAccuracy,
        MulticlassAUROC,
        MulticlassConfusionMatrix,
        MulticlassF1Score,
    )
    from torchmetrics.regression import R2Score

    scores, labels = torch.randn(32, 4).softmax(1), torch.randint(4, (32,))
    found = steps_of(nn.Linear(4, 4), [scores], side)
    metrics = MetricCollection(
        [MulticlassAccuracy(4), MulticlassF1Score(4), MulticlassAUROC(4, thresholds=20), MulticlassConfusionMatrix(4)]
    ).to(side.device)
    for half in (slice(0, 16), slice(16, 32)):
        metrics.update(scores[half].to(side.device), labels[half].to(side.device))
    found += [value.float() for _, value in sorted(metrics.compute().items())]
    r2 = R2Score().to(side.device)
    return [*found, r2(scores[:, 0].to(side.device), scores[:, 1].to(side.device))]
