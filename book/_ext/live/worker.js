// In the worker, after Brython and its modules: runs what the page sends, and sends back strings and numbers only.
(() => {
  const python = self.__BRYTHON__;
  // A module that is not packed is not there: nothing asks a server for it.
  self.XMLHttpRequest = function () {
    this.open = this.send = this.setRequestHeader = this.overrideMimeType = () => {};
    this.status = 404;
    this.readyState = 4;
  };
  let rows;
  self.bookWrite = text => self.postMessage({ out: text });
  self.bookRow = (...row) => { rows.push(row); };
  self.bookEnd = (error, line) => self.postMessage({ done: { rows, error, line } });
  self.onmessage = event => {
    rows = [];
    self.bookSource = event.data.source;
    try {
      python.runPythonSource(START, "start");
    } catch (error) {
      self.bookEnd(`The interpreter failed: ${error.message || error}`, 0);
    }
  };
  const START = `
import builtins, sys
from browser import self as page, run_script
from runner import run

def execute(source, say):
    builtins.print = say
    sys.modules.pop("capsule", None)
    run_script(source, "capsule")
    return vars(sys.modules["capsule"])

run(page.bookSource, execute, page.bookWrite, page.bookRow, page.bookEnd)
`;
  self.brython({ indexeddb: false, debug: 0 });
  self.postMessage({ ready: true });
})();
