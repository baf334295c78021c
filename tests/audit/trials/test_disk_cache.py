import os

import jax
import numpy as np
import pytest

import audit
import guarantees
import mechanisms
from audit.cli import main
from audit.trials import disk_cache
from audit.trials.kept_programs import PROGRAMS
from guarantees.laws import kept


@pytest.fixture
def untouched(monkeypatch, tmp_path):
    """A process in which nobody has said where programs are kept; JAX's own settings come back afterwards."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    for name in (*disk_cache.JAX_SETTINGS, disk_cache.SETTING):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


def test_programs_are_kept_in_the_users_cache_folder(untouched):
    folder = disk_cache.keep_compiled()
    assert folder is not None
    assert folder.is_dir()
    assert folder.parent == untouched / "dpsgd-audit" / "compiled"
    assert jax.config.jax_compilation_cache_dir == str(folder)


def test_a_users_own_setting_is_respected(untouched, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(untouched / "theirs"))
    assert disk_cache.keep_compiled() is None
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    jax.config.update("jax_compilation_cache_dir", str(untouched / "theirs"))
    assert disk_cache.keep_compiled() is None
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv(disk_cache.SETTING, "off")
    assert disk_cache.keep_compiled() is None
    assert jax.config.jax_compilation_cache_dir is None
    monkeypatch.setenv(disk_cache.SETTING, str(untouched / "chosen"))
    folder = disk_cache.keep_compiled()
    assert folder is not None
    assert folder.parent == untouched / "chosen"


def test_a_folder_that_cannot_be_made_is_done_without(untouched, monkeypatch):
    (untouched / "file").write_text("")
    monkeypatch.setenv(disk_cache.SETTING, str(untouched / "file"))
    assert disk_cache.keep_compiled() is None
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners are another thing here")
@pytest.mark.parametrize("shared", ["dpsgd-audit", "dpsgd-audit/compiled"])
def test_a_folder_that_others_can_write_to_is_done_without(untouched, capsys, shared):
    (untouched / "dpsgd-audit" / "compiled").mkdir(parents=True)
    for place in ("dpsgd-audit", "dpsgd-audit/compiled"):
        (untouched / place).chmod(0o775 if place == shared else 0o700)
    assert disk_cache.keep_compiled() is None
    assert f"{untouched / shared} can be written to by others; `chmod go-w` it" in capsys.readouterr().err
    assert jax.config.jax_compilation_cache_dir is None


def test_laws_are_kept_beside_the_programs_while_a_command_runs(untouched, monkeypatch):
    before = kept.LAWS.folder
    with disk_cache.laws_kept() as folder:
        assert folder is not None
        assert folder.parent == untouched / "dpsgd-audit" / "laws"
        assert kept.LAWS.folder == folder != before
    assert kept.LAWS.folder == before
    # what JAX keeps is another matter
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(untouched / "theirs"))
    with disk_cache.laws_kept() as again:
        assert again == folder
    monkeypatch.setenv(disk_cache.SETTING, "off")
    with disk_cache.laws_kept() as none:
        assert none is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners are another thing here")
def test_laws_that_others_could_change_are_not_used(untouched, capsys):
    (untouched / "dpsgd-audit" / "laws").mkdir(parents=True)
    (untouched / "dpsgd-audit" / "laws").chmod(0o777)
    with disk_cache.laws_kept() as folder:
        assert folder is None
        assert kept.LAWS.folder is None
    assert "laws are not kept" in capsys.readouterr().err


@pytest.mark.long
def test_an_audit_in_a_python_session_keeps_its_own_programs_and_laws(untouched, monkeypatch):
    monkeypatch.setattr(kept.LAWS, "told", False)
    monkeypatch.setattr(PROGRAMS, "told", False)
    seen = []

    def step(key, rows):
        seen.append((PROGRAMS.folder, kept.LAWS.folder))
        return rows.sum(0) + jax.random.normal(key, rows.shape[1:])

    pair = mechanisms.add_record(np.zeros((3, 2), np.float32), np.ones(2, np.float32))
    claim, key = guarantees.gaussian(mu=2.0), jax.random.key(0)
    audit.run_audit(step, pair, lambda output: output[0], claim=claim, trials=128, risk=0.05, key=key, diagnose=False)
    home = untouched / "dpsgd-audit"
    assert {tuple(folder.parent for folder in each) for each in seen} == {(home / "compiled", home / "laws")}
    assert PROGRAMS.folder is None
    # JAX's own settings are the user's
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.few(1)
@pytest.mark.parametrize("command", ["plan", "explain"])
def test_commands_before_a_run_keep_programs_where_it_does(untouched, command):
    (untouched / "privacy.toml").write_text(
        "[[audit]]\nname = 'sum'\nmechanism = { kind = 'gaussian_mechanism', noise_multiplier = 1.0 }\n"
        "neighbours = { kind = 'scalar_pair' }\ndistinguisher = { kind = 'projection' }\n"
        "claim = { kind = 'gaussian', mu = 1.0 }\n"
    )
    main([command, str(untouched / "privacy.toml"), "--quiet"])
    assert jax.config.jax_compilation_cache_dir.startswith(str(untouched / "dpsgd-audit" / "compiled"))


@pytest.mark.parametrize("setting", [*disk_cache.JAX_SETTINGS, disk_cache.SETTING])
def test_a_session_keeps_no_programs_where_it_is_told_otherwise(untouched, monkeypatch, setting):
    monkeypatch.setenv(setting, "off")
    with disk_cache.kept_in_sessions():
        assert PROGRAMS.folder is None


def test_a_command_that_keeps_nothing_is_obeyed(untouched, monkeypatch):
    monkeypatch.setattr(kept.LAWS, "told", False)
    with kept.laws_kept_in(None), PROGRAMS.kept_in(None), disk_cache.kept_in_sessions():
        assert kept.LAWS.folder is None
        assert PROGRAMS.folder is None
