import os

import jax
import pytest

from audit.commands import disk_cache
from guarantees.laws import kept


@pytest.fixture
def untouched(monkeypatch, tmp_path):
    """A process in which nobody has said where programs are kept; JAX's own settings come back afterwards."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    for name in (*disk_cache.OF_JAX, disk_cache.SETTING):
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
    before = kept._Shelf.folder
    with disk_cache.laws_kept() as folder:
        assert folder is not None
        assert folder.parent == untouched / "dpsgd-audit" / "laws"
        assert kept._Shelf.folder == folder != before
    assert kept._Shelf.folder == before
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
        assert kept._Shelf.folder is None
    assert "laws are not kept" in capsys.readouterr().err
