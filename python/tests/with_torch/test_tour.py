"""The notebook python/examples/tour.ipynb, run from its first cell to its last as a user runs it."""

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: pip install nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install ipykernel")
pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install matplotlib")

TOUR = Path(__file__).resolve().parents[2] / "examples" / "tour.ipynb"


def shown(cell) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def has_figure(cell) -> bool:
    return any("image/png" in output.get("data", {}) for output in cell.outputs)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The executed cells of code; a cell that raises fails the test with its traceback."""
    folder = tmp_path_factory.mktemp("tour")
    notebook = nbformat.read(TOUR, as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("OMP_NUM_THREADS", "1")
        client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
        client.execute()
    (page,) = folder.glob("fp16lab-tour-*/report.html")
    assert page.stat().st_size > 10_000
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_figures_are_drawn(cells):
    assert [i + 1 for i, cell in enumerate(cells) if has_figure(cell)] == [1, 2, 3, 5, 6, 8, 9]


def test_the_texts_are_what_the_sentences_say(cells):
    volta, hopper = shown(cells[3]).split("hopper: ")
    assert volta.startswith("volta: 1 + 0, exact: 1 + 1.19e-07\n")
    assert hopper.startswith("1 + 1.19e-07, exact: 1 + 1.19e-07\n")
    assert shown(cells[4]).startswith("In FP16 the values fit from 2^2 to 2^25: nothing overflows")
    scales, culprit, reached = shown(cells[9]).splitlines()
    assert scales.startswith("at loss scale 2^40, which was asked about, ")
    assert scales.endswith(" all are (tried)")
    assert re.match(r"backward: the backward of cast gave \w+\.output ", culprit)
    assert reached.startswith("gradients with an Inf or NaN, in order: ")
    assert "verdict: HOLDS" in shown(cells[10])


def test_no_cell_warns(cells):
    warned = [o.text for cell in cells for o in cell.outputs if o.get("name") == "stderr"]
    assert warned == []


def test_it_is_stored_without_outputs_and_says_what_each_cell_is_for():
    notebook = nbformat.read(TOUR, as_version=4)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds == ["markdown", "code"] * 11
    for text, code in zip(notebook.cells[::2], notebook.cells[1::2]):
        assert "*See:*" in text.source
        assert code.outputs == [] and code.execution_count is None
