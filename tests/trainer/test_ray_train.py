import pytest

from preprocessing.errors import ResourceError
from trainer.ray_train import Machine, cpus_per_worker


@pytest.mark.parametrize(
    ("machines", "workers", "gpu", "cpus"),
    [
        ([Machine(8, 0)], 1, False, 8),
        ([Machine(8, 0)], 3, False, 2),
        ([Machine(2, 0)], 2, False, 1),
        ([Machine(8, 0), Machine(3, 0)], 3, False, 3),
        ([Machine(16, 2), Machine(64, 0)], 2, True, 8),
        ([Machine(16, 1), Machine(4, 1)], 2, True, 4),
    ],
)
def test_workers_get_as_many_cpus_as_all_of_them_can(machines: list, workers: int, gpu: bool, cpus: int) -> None:
    assert cpus_per_worker(machines, workers, gpu=gpu) == cpus


@pytest.mark.parametrize(
    ("machines", "workers", "gpu"), [([Machine(2, 0)], 3, False), ([Machine(16, 1)], 2, True), ([], 1, False)]
)
def test_what_the_cluster_cannot_hold_is_refused_with_have_and_need(machines: list, workers: int, gpu: bool) -> None:
    with pytest.raises(ResourceError) as error:
        cpus_per_worker(machines, workers, gpu=gpu)
    assert f"{workers} workers" in str(error.value.given)
    assert f"{sum(machine.cpus for machine in machines)} CPUs" in str(error.value.given)
    assert error.value.pointer == "/settings/run/num_workers"
