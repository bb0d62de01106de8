import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.sparse import Pattern, SparseMatrix, _multiply_by_torch


def random_matrix(rows: int, columns: int, density: float, seed: int) -> SparseMatrix:
    rng = np.random.default_rng(seed)
    present = rng.random((rows, columns)) < density
    indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))])
    values = rng.normal(size=int(indptr[-1])).astype(np.float32)
    values[rng.random(len(values)) < 0.3] = 0
    pattern = Pattern(torch.from_numpy(indptr), torch.from_numpy(np.nonzero(present)[1].astype(np.int32)), columns)
    return SparseMatrix(pattern, torch.from_numpy(values))


def to_dense(matrix: SparseMatrix) -> torch.Tensor:
    out = torch.zeros(matrix.shape)
    indptr = matrix.pattern.indptr.tolist()
    for row in range(matrix.shape[0]):
        for entry in range(indptr[row], indptr[row + 1]):
            out[row, matrix.pattern.indices[entry]] += matrix.values[entry]
    return out


@given(st.integers(0, 12), st.integers(1, 12), st.floats(0, 1), st.integers(0, 99))
def test_product_and_gradient_are_those_of_the_dense_matrix(rows: int, columns: int, density: float, seed: int) -> None:
    matrix = random_matrix(rows, columns, density, seed)
    x = torch.randn(columns, 3, generator=torch.Generator().manual_seed(seed), requires_grad=True)
    weight = torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed + 1))

    product = matrix.matmul(x)
    (product * weight).sum().backward()

    torch.testing.assert_close(product, to_dense(matrix) @ x.detach())
    torch.testing.assert_close(x.grad, to_dense(matrix).T @ weight)


def test_rows_shared_among_threads_give_the_serial_product(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random_matrix(300, 200, 0.1, 1)
    x = torch.randn(200, 64)
    serial = matrix.matmul(x)
    monkeypatch.setattr("trainer.row_threads.SERIAL_WORK", 0)
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    assert torch.equal(matrix.matmul(x), serial)


def test_the_product_for_other_devices_agrees(recwarn: pytest.WarningsRecorder) -> None:
    matrix = random_matrix(30, 20, 0.2, 2)
    x = torch.randn(20, 5)
    with torch.no_grad():
        by_torch = _multiply_by_torch(matrix, x)
    torch.testing.assert_close(by_torch, to_dense(matrix) @ x)


def test_transposing_twice_is_the_matrix_itself() -> None:
    matrix = random_matrix(17, 9, 0.3, 3)
    again = matrix.transposed.transposed
    assert torch.equal(again.pattern.indptr, matrix.pattern.indptr)
    assert torch.equal(again.pattern.indices, matrix.pattern.indices)
    assert torch.equal(again.values, matrix.values)


def test_a_product_of_the_wrong_height_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot multiply"):
        random_matrix(3, 4, 0.5, 0).matmul(torch.ones(5, 2))
