"""The LoRA example by Opacus, and a training whose updates never reach the model that is kept."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "lora_opacus.py"


@pytest.fixture
def lora(monkeypatch):
    pytest.importorskip("opacus", reason="Opacus is not installed: pip install dpsgd-audit[opacus]")
    spec = importlib.util.spec_from_file_location("lora_opacus", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_one_lora_training_by_opacus_proves_something_and_a_stale_one_is_refused(lora, monkeypatch, capsys):
    lora.main(["--canaries", "2000", "--divided", "4"])
    proven = float(capsys.readouterr().out.split("proven ")[1].split(",")[0])
    assert proven > 2
    monkeypatch.setattr(lora, "STEPS", 2)
    with pytest.raises(ValueError, match="in 2 steps no canary's coordinate moved"):
        lora.main(["--canaries", "200", "--stale"])
