from __future__ import annotations

import pytest

import audit
from audit.record.files import FileError


def test_the_folder_of_a_file_of_records_is_made(tmp_path):
    audit.save_records((), tmp_path / "paper" / "today" / "records.json")
    assert audit.load_records(tmp_path / "paper" / "today" / "records.json") == ()


def test_a_file_in_the_folders_place_is_told(tmp_path):
    (tmp_path / "paper").write_text("mine")
    with pytest.raises(FileError, match="cannot be written"):
        audit.save_records((), tmp_path / "paper" / "records.json")
