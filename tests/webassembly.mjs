// Runs the self-test in Pyodide, with nothing but Python's standard library and no child process.
//   node tests/webassembly.mjs FOLDER-OF-PYODIDE ROOT-OF-THE-CLONE
// Prints one JSON object: the last lines for the solutions and for the labs as handed out,
// and which packages were loaded meanwhile.
import { pathToFileURL } from "node:url";

const [folder, root] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`));
const python = await loadPyodide();
python.FS.mkdirTree("/clone");
python.FS.mount(python.FS.filesystems.NODEFS, { root }, "/clone");
const answer = python.runPython(`
import contextlib, io, json, os, sys
os.chdir("/clone")
sys.path[:0] = ["/clone/course", "/clone"]
from grader.cli import main

said = {}
for where in ("solutions", "labs"):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["selftest"] if where == "solutions" else ["selftest", where])
    lines = out.getvalue().splitlines()
    said[where] = {"code": code, "last": lines[-1] if lines else "", "error": err.getvalue()}
packages = {name.partition(".")[0] for name in sys.modules}
ours = {"compaction", "grader"}
shipped = {"pyodide", "pyodide_js", "js", "__main__"}
said["foreign"] = sorted(packages - set(sys.stdlib_module_names) - ours - shipped)
json.dumps(said)
`);
console.log(answer);
