// RUN: warploom-opt %s --split-input-file --verify-diagnostics

// expected-error @+3 {{'mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32' is not a PTX instruction known here; the nearest are mma.sync.aligned.m16n8k}}
ptx.module @unknown_shape version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    ptx.inst mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 ()
  }
}

// -----

// expected-error @+3 {{'ad.s32' is not a PTX instruction known here; the nearest are}}
ptx.module @unknown_root version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    ptx.inst ad.s32 ()
  }
}

// -----

// expected-error @+4 {{add.s32: expected 3 operands (d, a, b), got 2 (PTX ISA 9.7.1.1)}}
ptx.module @operand_count version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %r = ptx.reg b32 "%r"
    ptx.inst add.s32 %r, %r
  }
}

// -----

// expected-error @+5 {{mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32: operand a: expected 4 x .f16x2, got 2 (PTX ISA 9.7.14.5.8)}}
ptx.module @vector_size version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %f:4 = ptx.reg f32 "%f"<4>
    %r:2 = ptx.reg b32 "%r"<2>
    ptx.inst mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f#0, %f#1, %f#2, %f#3}, {%r#0, %r#1}, {%r#0, %r#1}, {%f#0, %f#1, %f#2, %f#3}
  }
}

// -----

// expected-error @+5 {{add.f32: operand b: expected a register that holds .f32, got .u32}}
ptx.module @register_type version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %f = ptx.reg f32 "%f"
    %u = ptx.reg u32 "%u"
    ptx.inst add.f32 %f, %f, %u
  }
}

// -----

// expected-error @+4 {{ld.global.b64: operand d: expected a register that holds .b64 or wider, got .b32}}
ptx.module @narrow_load version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %r = ptx.reg b32 "%r"
    ptx.inst ld.global.b64 %r, [%r]
  }
}

// -----

// expected-error @+4 {{add.f32: operand b: expected a floating-point literal such as 0f3F800000 for .f32}}
ptx.module @integer_literal version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %f = ptx.reg f32 "%f"
    ptx.inst add.f32 %f, %f, 1
  }
}

// -----

// expected-error @+4 {{add.u32: operand a: the special register %tid.x can be read by mov and cvt of .b, .u and .s types only}}
ptx.module @special_register version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %r = ptx.reg b32 "%r"
    ptx.inst add.u32 %r, "%tid.x", 1
  }
}

// -----

// expected-error @+4 {{ldmatrix.sync.aligned.m8n8.x1.shared.b16: needs sm_75 or later, the module's target is sm_70}}
ptx.module @target version "8.0" target "sm_70" address_size 64 {
  ptx.func entry visible @k() {
    %r = ptx.reg b32 "%r"
    ptx.inst ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r}, [%r]
  }
}

// -----

// expected-error @+3 {{cp.async.wait_all: needs PTX 7.0 or later, the module's version is 6.5}}
ptx.module @version version "6.5" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    ptx.inst cp.async.wait_all ()
  }
}

// -----

// expected-error @+5 {{cp.async.cg.shared.global: operand n: expected 16, got 8}}
ptx.module @copy_size version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %r = ptx.reg b32 "%r"
    %rd = ptx.reg b64 "%rd"
    ptx.inst cp.async.cg.shared.global [%r], [%rd], 8
  }
}

// -----

// expected-error @+4 {{ld.shared.b32: operand a: expected an address in brackets, got a .b32 register}}
ptx.module @address version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %r = ptx.reg b32 "%r"
    ptx.inst ld.shared.b32 %r, %r
  }
}

// -----

// expected-error @+4 {{bra: expected the guard to be a predicate register, got .b32}}
ptx.module @guard version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %r = ptx.reg b32 "%r"
    ptx.inst "@" %r bra @L
  }
}

// -----

// expected-error @+3 {{ret: the form '?' takes 1 registers, got 0}}
ptx.module @form version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    "ptx.inst"() <{opcode = "ret", form = "?"}> : () -> ()
  }
}

// -----

// expected-error @+3 {{register %x is not declared by a ptx.reg above}}
ptx.module @undeclared version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    ptx.inst add.s32 %x, %x, 1
  }
}

// -----

// expected-error @+3 {{'bf16' is not a register type; expected one of pred, b8}}
ptx.module @not_a_register_type version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %x = "ptx.reg"() <{base = "%x"}> : () -> !ptx.reg<bf16>
  }
}

// -----

// expected-error @+3 {{'%x' declares 3 registers, got 1 results}}
ptx.module @register_count version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %x = "ptx.reg"() <{base = "%x", count = #builtin.int<3>}> : () -> !ptx.reg<b32>
  }
}

// -----

// expected-error @+3 {{'%b32<2>': a base that is counted may not end in a digit}}
ptx.module @base version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() {
    %x, %y = ptx.reg b32 "%b32"<2>
  }
}

// -----

// expected-error @+2 {{the alignment of 'smem' must be a power of two, got 12}}
ptx.module @alignment version "8.0" target "sm_80" address_size 64 {
  ptx.var ".shared .align 12 .b8 smem[16]"
}

// -----

// expected-error @+2 {{expected a declaration such as '.shared .align 16 .b8 name[64];', got '.texture .b8 smem[16];'}}
ptx.module @space version "8.0" target "sm_80" address_size 64 {
  ptx.var ".texture .b8 smem[16]"
}

// -----

// expected-error @below {{expected a PTX version such as "8.0", got "eight"}}
ptx.module @version_text version "eight" target "sm_80" address_size 64 {
}

// -----

// expected-error @below {{expected address_size 32 or 64, got 16}}
ptx.module @address_size version "8.0" target "sm_80" address_size 16 {
}

// -----

// expected-error @+2 {{kernel 'k' returns values; only a .func may}}
ptx.module @kernel_returns version "8.0" target "sm_80" address_size 64 {
  ptx.func entry visible @k() returns (".param .b32 r") {
    ptx.inst ret ()
  }
}
