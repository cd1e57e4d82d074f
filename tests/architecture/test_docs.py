"""Every path and symbol that the documents name is in the tree: a document nobody tests rots."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("ARCHITECTURE.md", "README.md")

# A back-ticked word that names code: a path, a file, an identifier, a call.
PATH = re.compile(r"^[\w./-]+\.(py|proto|lua|md|toml|yaml)$|^[\w-]+(/[\w.-]+)*/$")
SYMBOL = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\(\))?$")


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def code_words() -> set[str]:
    words: set[str] = set()
    for path in tracked_files():
        if path.suffix in {".py", ".proto", ".lua", ".toml"} or path.name == "Makefile":
            words.update(re.findall(r"[A-Za-z_][\w-]*", path.read_text()))
            words.update(path.stem for _ in (0,))
    return words


def named_in(document: str) -> list[str]:
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.S)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_and_symbol_exists(document):
    files = tracked_files()
    paths = {str(path.relative_to(ROOT)) for path in files}
    folders = {f"{parent}/" for path in paths for parent in map(str, Path(path).parents)}
    words = code_words()

    missing = []
    for name in named_in(document):
        if PATH.match(name):
            known = paths | folders
            if not any(k == name or k.endswith(f"/{name}") for k in known):
                missing.append(name)
        elif SYMBOL.match(name):
            last = name.removesuffix("()").split(".")[-1]
            if last not in words:
                missing.append(name)

    assert missing == []


def test_the_architecture_stays_readable():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 200
