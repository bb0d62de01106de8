"""A stage that does as its spec says: ``python service_fake_stage.py SPEC.json``."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def emit(name: str, event: str, **fields: object) -> None:
    with Path(os.environ["RGRL_EVENTS"]).open("a") as file:
        file.write(json.dumps({"time": "2026-11-28T00:00:00.000Z", "event": event, "stage": name, **fields}) + "\n")


def note(path: str) -> None:
    with Path(path).open("a") as file:
        file.write("SIGTERM\n")


def main(spec: dict) -> int:
    name = spec["name"]
    if spec.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if spec.get("stray"):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], start_new_session=True)
    if "terms" in spec:
        signal.signal(signal.SIGTERM, lambda *_: note(spec["terms"]))
    if "parent" in spec:
        Path(spec["parent"]).write_text(f"{os.environ['RGRL_PARENT']} {os.getppid()}")
    if not spec.get("silent"):
        print(f"{name} begins" + "." * spec.get("noise", 0), flush=True)
    emit(name, "progress", done=0, total=2, unit="rows", rate=0.0, eta_s=None)
    for step in range(spec.get("steps", 0)):
        emit(name, "metrics", step=step, values={"loss": 1.0 / (step + 1), "rank": None})
    for code, message in spec.get("warnings", []):
        emit(name, "warning", code=code, message=message)
    for state, reason in spec.get("health", []):
        emit(name, "health", state=state, reason=reason)
    if "tell" in spec:
        names = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
        Path(spec["tell"]).write_text(json.dumps([os.environ.get(name) for name in names]))
    if "once" in spec and Path(spec["once"]).exists():
        spec = {name: value for name, value in spec.items() if name not in {"error", "exit", "signal", "gate", "last"}}
    elif "once" in spec:
        Path(spec["once"]).touch()
    if "leave" in spec:
        from preprocessing.artifact import build

        with build(Path(spec["leave"]["path"]), spec["leave"]["kind"], "fake") as made:
            (made.path / "half").write_text("half")
    gate = spec.get("gate")
    while gate and not Path(gate).exists():
        time.sleep(0.01)
    time.sleep(spec.get("seconds", 0))
    if "signal" in spec:
        os.kill(os.getpid(), spec["signal"])
    if "error" in spec:
        emit(name, "error", error=spec["error"])
    while "last" in spec and not Path(spec["last"]).exists():
        time.sleep(0.01)
    if spec.get("exit"):
        return spec["exit"]
    if "make" in spec:
        from preprocessing.artifact import build

        with build(Path(spec["make"]["path"]), spec["make"]["kind"], "fake") as made:
            made.publish(spec["make"]["manifest"])
    emit(name, "progress", done=2, total=2, unit="rows", rate=1.0, eta_s=0.0)
    with Path(spec["ledger"]).open("a") as file:
        file.write(f"{os.environ['RGRL_JOB']} {name}\n")
    if not spec.get("mute"):
        summary = spec.get("summary", {"name": name})
        # A path where a label, which the spec goes by, is too short for it.
        emit(name, "result", summary=json.loads(Path(summary).read_text()) if isinstance(summary, str) else summary)
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(Path(sys.argv[-1]).read_text())))
