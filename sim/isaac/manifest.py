"""What `worker.py` calls of Isaac Sim, and whether Isaac Sim has it.

    python sim/isaac/manifest.py [VERSION]     (default: the version of manifest.json)

downloads the vendor's wheels (120 MB) into a folder that is deleted afterwards, reads their Python
sources - nothing is installed or run - and writes `manifest.json`: every name that the worker
uses, with its parameters. A test holds the worker against that file. Who runs this accepts the
vendor's terms for the wheels.
"""

import ast
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
MANIFEST, WORKER = HERE / "manifest.json", HERE / "worker.py"
WHEELS = ("isaacsim-kernel", "isaacsim-core", "isaacsim-sensor")
PYTHON, PLATFORM = "3.12", "manylinux_2_35_x86_64"  # of Isaac Sim 6
ROOT = "isaacsim"
PROPERTY = "property"


class Uses(ast.NodeVisitor):
    """Every use of Isaac Sim's in a source.

    Attributes:
        found: (name, number of positional arguments, keywords, line), where the name is
            `module:symbol` or `module:Class.member`; the number is None for a mere attribute.
        extensions: those that are enabled by name.
    """

    def __init__(self, source):
        self.found, self.extensions = [], []
        self._names, self._kinds = {}, {}  # name -> module:symbol; expression -> its class
        tree = ast.parse(source)
        for node in ast.walk(tree):  # first what is what, wherever it is said
            self._learn(node)
        self.visit(tree)

    def _learn(self, node):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == ROOT:
            for alias in node.names:
                self._names[alias.asname or alias.name] = f"{node.module}:{alias.name}"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._learn_kind(target, node.value)
        elif isinstance(node, ast.AnnAssign):
            if isinstance(node.annotation, ast.Name) and node.annotation.id in self._names:
                self._kinds[ast.unparse(node.target)] = self._names[node.annotation.id]
        elif isinstance(node, ast.For):
            over = node.iter
            if isinstance(over, ast.Call) and ast.unparse(over.func) == "zip":
                over, node = over.args[0], ast.For(target=node.target.elts[0])
            kind = self._kinds.get(f"{ast.unparse(over)}[]")
            if kind:
                self._kinds[ast.unparse(node.target)] = kind

    def _learn_kind(self, target, value):
        """The class of what a call makes, of each element of a list, or of a class by itself."""
        suffix = ""
        if isinstance(value, ast.ListComp):
            value, suffix = value.elt, "[]"
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            made = self._names.get(value.func.id)
            if made and made.rpartition(":")[2][:1].isupper():
                self._kinds[ast.unparse(target) + suffix] = made
        elif isinstance(value, ast.Name) and value.id in self._names:
            self._kinds[ast.unparse(target)] = self._names[value.id]

    def _name(self, node):
        """`module:symbol` of an expression, or None."""
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._names[node.id]
        if not isinstance(node, ast.Attribute):
            return None
        owner = self._kinds.get(ast.unparse(node.value)) or self._name(node.value)
        if owner is None:
            return None
        module, _, symbol = owner.partition(":")
        if symbol[:1].isupper():  # of a class; otherwise of a module
            return f"{owner}.{node.attr}"
        return f"{module}.{symbol}:{node.attr}"

    def visit_Call(self, node):
        """A call, with its arguments."""
        name = self._name(node.func)
        if name:
            keywords = [keyword.arg for keyword in node.keywords]
            self.found.append((name, len(node.args), keywords, node.lineno))
            if name.endswith(":enable_extension"):
                self.extensions += [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            for child in (*node.args, *(keyword.value for keyword in node.keywords)):
                self.visit(child)
        else:
            self.generic_visit(node)

    def visit_Attribute(self, node):
        """An attribute that is not called."""
        name = self._name(node)
        if name:
            self.found.append((name, None, [], node.lineno))
        self.generic_visit(node)


def wrong(uses, known):
    """What the uses do that the manifest's names do not allow, in words."""
    out = []
    for name, count, keywords, line in uses:
        has = known.get(name)
        if has is None:
            out.append(f"line {line}: {name} is not in the manifest")
        elif count is None or has == PROPERTY:
            if (count is None) != (has == PROPERTY):
                out.append(f"line {line}: {name} is {has}")
        else:
            out += [f"line {line}: {name} {what}" for what in _misfits(has, count, keywords)]
    return out


def _misfits(has, count, keywords):
    places = has.index("*") if "*" in has else len(has)
    names = [word.rstrip("=") for word in has]
    if count > places:
        yield f"takes {places} arguments by place, {count} given"
    for keyword in keywords:
        if keyword not in names or keyword == "*":
            yield f"has no parameter {keyword}"
    for index, word in enumerate(has):
        given = index < count or names[index] in keywords
        if word != "*" and not word.endswith("=") and not given:
            yield f"needs {word}"


def signature(node):
    """Parameters as in `manifest.json`: 'a', 'b=' with a default, '*' before keyword-only ones."""
    of = node.args
    places = [arg.arg for arg in (*of.posonlyargs, *of.args)]
    first = len(places) - len(of.defaults)
    words = [name + ("=" if index >= first else "") for index, name in enumerate(places)]
    words += ["*"] if of.kwonlyargs else []
    for arg, default in zip(of.kwonlyargs, of.kw_defaults, strict=True):
        words.append(arg.arg + ("=" if default is not None else ""))
    return words


def look_up(name, sources):
    """The parameters of `module:symbol` or `module:Class.member`, "property", or None.

    sources: path -> text, of an unpacked installation.
    """
    module, _, symbol = name.partition(":")
    owner, _, member = symbol.partition(".")
    folder = module.replace(".", "/") if module != ROOT else "isaacsim/simulation_app"
    # a module has its code beside it: utils/app.py re-exports utils/impl/app.py
    parts = folder.rpartition("/")
    near = {p: text for p, text in sources.items() if f"/{folder}/" in p and "/tests/" not in p}
    if not near:
        near = {
            p: text for p, text in sources.items() if p.endswith(f"{parts[0]}/impl/{parts[2]}.py")
        }
    nodes = {n.name: n for text in near.values() for n in ast.parse(text).body
             if isinstance(n, ast.ClassDef | ast.FunctionDef)}  # fmt: skip
    node = nodes.get(owner)
    if isinstance(node, ast.FunctionDef):
        return signature(node)
    if node is None:
        return None
    return _member(node, member or "__init__", nodes)


def _member(node, member, nodes):
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef) and inner.name == member:
            marks = [ast.unparse(mark) for mark in inner.decorator_list]
            if PROPERTY in marks:
                return PROPERTY
            return signature(inner)[0 if "staticmethod" in marks else 1 :]
    for base in node.bases:
        found = nodes.get(ast.unparse(base))
        if found is not None and (has := _member(found, member, nodes)) is not None:
            return has
    return None


def sources_of(folder):
    """Path -> text of the Python files in the wheels of a folder."""
    out = {}
    for wheel in sorted(Path(folder).glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            for path in packed.namelist():
                if path.endswith(".py"):
                    out[path] = packed.read(path).decode(errors="replace")
    return out


def refresh(version, folder):
    """The manifest for the wheels in a folder. Raises `SystemExit` when a name is not there."""
    sources, uses = sources_of(folder), Uses(WORKER.read_text())
    names = sorted({name for name, *_ in uses.found})
    found = {name: look_up(name, sources) for name in names}
    there = {path.split("/")[2] for path in sources if path.startswith(f"{ROOT}/exts/")}
    found |= {name: None for name in uses.extensions if name not in there}
    if missing := [name for name, has in found.items() if has is None]:
        raise SystemExit(f"Isaac Sim {version} has no {', '.join(missing)}")
    about = {"isaacsim": version, "wheels": list(WHEELS), "extensions": uses.extensions}
    return about | {"names": found}


def main():
    """Download, read, write."""
    known = json.loads(MANIFEST.read_text())["isaacsim"] if MANIFEST.exists() else ""
    version = sys.argv[1] if len(sys.argv) > 1 else known
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--python-version", PYTHON, "--platform", PLATFORM, "--dest", folder]
        command += ["--only-binary=:all:", *(f"{name}=={version}" for name in WHEELS)]
        subprocess.run(command, check=True)
        manifest = refresh(version, folder)
    MANIFEST.write_text(json.dumps(manifest, indent=1) + "\n")
    sys.stdout.write(f"{len(manifest['names'])} names of Isaac Sim {version}: {MANIFEST}\n")


if __name__ == "__main__":
    main()
