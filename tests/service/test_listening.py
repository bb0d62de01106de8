"""What a server says before it serves: nothing untrue, and why it cannot listen where it cannot."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from service_harness import settings_in

from preprocessing.errors import UsageError
from service.api.serve import listen, serve


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_a_port_in_use_is_told_before_the_server_says_that_it_serves(
    tmp_path: Path, host: str, family: socket.AddressFamily
) -> None:
    said: list[bool] = []
    with socket.create_server((host, 0), family=family) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match="cannot listen") as error:
            serve(settings_in(tmp_path, host=host, port=port), announce=lambda: said.append(True))
    assert said == []
    assert error.value.given == f"{host}, port {port}"
    assert "--port" in (error.value.remedy or "")


def test_an_address_of_another_machine_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot listen"):
        serve(settings_in(tmp_path, host="192.0.2.77", port=8000, insecure=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_no_answer_waits_for_the_acknowledgement_of_its_head(host: str) -> None:
    with listen(host, 0) as listening, socket.create_connection(listening.getsockname()[:2]):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("home", ["file", "file/home"])
def test_a_home_that_is_no_folder_is_told(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="home cannot be used") as error:
        serve(settings_in(tmp_path, home=tmp_path / home))
    assert error.value.given == str(tmp_path / home)
    assert "--home" in (error.value.remedy or "")
