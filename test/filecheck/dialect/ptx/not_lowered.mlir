// RUN: warploom-opt %s -t ptx --verify-diagnostics --split-input-file

// expected-error @unknown {{there is no ptx.module to print: the module has not been lowered to the ptx dialect}}
builtin.module {
}
