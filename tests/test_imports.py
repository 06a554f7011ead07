"""The one-way order of the package's imports, and an `import bayes_irsl` that costs nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A module may import modules of its own line (without going round in a circle) and of the lines above it.
ORDER = (
    ("errors", "_files", "_special", "_beta_density", "_count_density", "_validate", "_options", "_like", "compute"),
    ("curves", "likelihoods", "priors", "kernels"),
    ("answers",),
    ("responses", "_ingest", "_tables", "_responses_xarray", "data"),
    ("readers", "datasets", "simulate"),
    ("spec", "tails"),
    ("cells", "distributions", "covariates", "block_layout", "blocks", "abilities", "question_error"),
    ("models",),
    ("inference",),
    ("anchoring", "item_fit", "item_stage", "trajectory_fit", "repeated_fit", "fitting"),
    ("bank", "_bank_file", "_bank_fit", "linking", "grids", "quadrature", "benchmark_scores", "scoring"),
    ("forecasts", "adaptive", "diagnostics", "baselines"),
    ("plots",),
    ("report",),
    ("cli", "demo", "__main__", ""),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}

# Methods of the face that hand over to a later part when they are called: fit.report() is all of these.
HANDED_ON = {("fitting", "report"), ("fitting", "diagnostics")}


def modules(root: Path) -> dict[str, Path]:
    """Dotted names of the package's modules, wherever their files lie (models/ and data/ stand outside)."""
    found = {}
    for folder, prefix in (
        (root / "bayes_irsl", ()),
        (root / "models", ("models",)),
        (root / "data", ("data",)),
    ):
        for path in sorted(folder.rglob("*.py")):
            parts = (*prefix, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(("bayes_irsl", *parts)).removesuffix(".__init__")] = path
    return found


def imports(path: Path, name: str, known: set[str]) -> set[tuple[str, bool]]:
    """(absolute module, whether only when a function is called); imports for type checkers are left out."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()

    def visit(node: ast.AST, deferred: bool) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.orelse:
                visit(child, deferred)
            return
        if isinstance(node, ast.Import):
            found.update((alias.name, deferred) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{origin}.{alias.name}"
                inner = whole in known or (origin, alias.name) == ("numpyro", "infer")
                found.add((whole if inner else origin, deferred))
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("numpyro.infer"):
            found.add(("numpyro.infer", deferred))
        deferred = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, deferred)

    visit(ast.parse(path.read_text()), False)
    return found


def part(module: str) -> str:
    """The piece of the layout that a module belongs to: bayes_irsl.inference.nuts -> inference."""
    return module.partition(".")[2].partition(".")[0]


def violations(root: Path) -> list[str]:
    """Everything that breaks the order, in words."""
    found = modules(root)
    wrong, edges = [], {}
    for name, path in found.items():
        if name == "bayes_irsl":
            continue
        if part(name) not in RANK:
            wrong.append(f"{name}: not in the layout; give {part(name)!r} a place in ORDER")
            continue
        for target, deferred in imports(path, name, set(found)):
            top = target.partition(".")[0]
            if target.startswith("numpyro.infer") and part(name) != "inference":
                wrong.append(f"{name} imports {target}: only bayes_irsl.inference may")
            if top == "numpyro" and part(name) in ("curves", "likelihoods"):
                wrong.append(f"{name} imports {target}: pure maths knows no NumPyro")
            if top != "bayes_irsl" or part(target) == part(name):
                continue
            if RANK.get(part(target), 99) > RANK[part(name)]:
                if not (deferred and (part(name), part(target)) in HANDED_ON):
                    wrong.append(f"{name} imports {target}: against the order")
            elif not deferred:
                edges.setdefault(part(name), set()).add(part(target))
    return sorted({*wrong, *(f"circle through {start}" for start in edges if _returns(start, edges))})


def _returns(start: str, edges: dict[str, set[str]]) -> bool:
    seen, todo = set(), list(edges[start])
    while todo:
        at = todo.pop()
        if at == start:
            return True
        if at not in seen:
            seen.add(at)
            todo.extend(edges.get(at, ()))
    return False


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_imports_go_one_way():
    assert violations(ROOT) == []


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        target = root / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (
            {"bayes_irsl/curves.py": "from bayes_irsl.fitting import Fit"},
            "curves imports bayes_irsl.fitting: against",
        ),
        ({"bayes_irsl/curves.py": "from . import fitting"}, "curves imports bayes_irsl.fitting: against"),
        ({"bayes_irsl/bank.py": "def f():\n    import bayes_irsl.report"}, "against the order"),
        ({"bayes_irsl/fitting.py": "import bayes_irsl.report"}, "against the order"),
        ({"bayes_irsl/fitting.py": "import bayes_irsl as bi"}, "against the order"),
        ({"bayes_irsl/likelihoods.py": "import numpyro.distributions as dist"}, "knows no NumPyro"),
        ({"models/line.py": "from numpyro import infer"}, "only bayes_irsl.inference"),
        ({"models/line.py": "import numpyro\nx = numpyro.infer.NUTS"}, "only bayes_irsl.inference"),
        ({"bayes_irsl/utils.py": ""}, "not in the layout"),
        (
            {"bayes_irsl/curves.py": "from . import priors", "bayes_irsl/priors.py": "from . import curves"},
            "circle through priors",
        ),
    ],
)
def test_the_walker_sees_what_breaks_the_order(tmp_path, files, says):
    write(tmp_path, {"bayes_irsl/fitting.py": "", "bayes_irsl/report.py": ""} | files)
    assert any(says in line for line in violations(tmp_path)), violations(tmp_path)


def test_the_walker_lets_through_what_is_allowed(tmp_path):
    lazy = "from bayes_irsl.errors import InputError\ndef report(self):\n    from bayes_irsl import report"
    types = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from bayes_irsl.report import Report"
    files = {
        "errors": "",
        "report": "from bayes_irsl import fitting",
        "fitting": lazy,
        "bank": types,
        "demo": "import bayes_irsl as bi",
    }
    write(tmp_path, {f"bayes_irsl/{name}.py": text for name, text in files.items()})
    assert violations(tmp_path) == []


def test_import_is_lazy():
    heavy = ("jax", "numpyro", "pandas", "xarray", "arviz", "matplotlib", "scipy")
    assert run(f"import sys, bayes_irsl; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_every_public_name_is_there_and_no_module_hides_it():
    names = [name for name in modules(ROOT) if not name.endswith("__main__")]
    code = (
        f"import importlib, types, bayes_irsl as bi\nfor name in {names}: importlib.import_module(name)\n"
        "print([n for n in bi.__all__ if isinstance(getattr(bi, n), types.ModuleType)])"
    )
    assert run(code) == "[]"


def test_no_module_starts_a_backend_when_imported():
    """NB-03: importing takes no device memory."""
    names = [name for name in modules(ROOT) if not name.endswith("__main__")]
    code = (
        f"import importlib\nfor name in {names}: importlib.import_module(name)\n"
        "from jax._src import xla_bridge\nprint(xla_bridge.backends_are_initialized())"
    )
    assert run(code) == "False"
