"""lit's configuration: FileCheck tests under test/filecheck, run in forks of the lit worker."""

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "test"))

import lit_fork  # noqa: E402

config: Any = globals()["config"]
config.name = "warploom"
config.suffixes = [".mlir", ".ptx"]
config.excludes = ["Inputs"]
config.test_source_root = str(ROOT)
config.test_exec_root = str(ROOT / "build" / "lit")
config.test_format = lit_fork.ForkTest()
config.environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
config.environment["WARPLOOM_CACHE"] = os.environ["WARPLOOM_CACHE"] = "off"
config.substitutions.append(("%examples", str(ROOT / "examples")))

lit_fork.preimport()
