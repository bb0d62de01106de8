import pytest
import torch
from torch.nn.functional import prelu

from trainer.activation import SUM_ROWS, affine_prelu
from trainer.encoders.gcn import GcnLayer


def leaves(rows: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(rows, 5), (5,), (5,)]
    tensors = [torch.randn(shape, generator=generator) for shape in shapes] + [torch.tensor([0.25])]
    return [tensor.to(dtype).requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("rows", [0, 1, 3 * SUM_ROWS + 7])
def test_value_and_gradients_are_those_of_the_three_steps(rows: int) -> None:
    given, exact = leaves(rows), leaves(rows, torch.float64)
    weight = torch.randn(rows, 5, generator=torch.Generator().manual_seed(1))
    result = affine_prelu(*given)
    (result * weight).sum().backward()
    x, scale, shift, slope = exact
    expected = prelu(x * scale + shift, slope)
    (expected * weight).sum().backward()
    torch.testing.assert_close(result.double(), expected)
    for one, other in zip(given, exact, strict=True):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-4, atol=1e-4)


def test_the_sums_do_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.row_threads.SERIAL_WORK", 0)
    gradients = []
    for threads in (1, 3):
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        given = leaves(2000)
        affine_prelu(*given).square().sum().backward()
        gradients.append([leaf.grad for leaf in given])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_a_layers_end_is_bias_normalisation_and_activation(training: bool) -> None:
    layer = GcnLayer(4, 5, momentum=0.1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.rand(parameter.shape, generator=torch.Generator().manual_seed(2)))
        layer.norm.running_mean += 0.3
        layer.norm.running_var *= 2
    layer.norm.train(training)
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(3))
    mean, variance = (x + layer.bias).mean(0), (x + layer.bias).var(0, unbiased=False)
    if not training:
        mean, variance = layer.norm.running_mean.clone(), layer.norm.running_var.clone()
    normal = (x + layer.bias - mean) / (variance + 1e-5).sqrt() * layer.norm.weight + layer.norm.bias
    expected = torch.where(normal > 0, normal, normal * layer.activation.weight)
    torch.testing.assert_close(layer.activate(x), expected)
