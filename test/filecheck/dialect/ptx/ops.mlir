// RUN: warploom-opt %s | filecheck %s
// RUN: warploom-opt %s | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | warploom-opt | filecheck %s
// RUN: warploom-opt %s --print-op-generic | filecheck %s --check-prefix=GENERIC
// RUN: warploom-opt %s -t ptx | filecheck %s --check-prefix=PTX
// RUN: warploom-opt %s --print-op-generic | warploom-opt -t ptx | filecheck %s --check-prefix=PTX

// CHECK: ptx.module @kernels version "8.0" target "sm_80" address_size 64 preamble [" made by hand"] attributes {owner = 1 : i64} {
// GENERIC: "ptx.module"() <{sym_name = "kernels", version = "8.0", target = "sm_80", address_size = 64 : i64, preamble = [" made by hand"]}> ({
// PTX:      // made by hand
// PTX-NEXT: .version 8.0
// PTX-NEXT: .target sm_80
// PTX-NEXT: .address_size 64
ptx.module @kernels version "8.0" target "sm_80" address_size 64 preamble [" made by hand"] attributes {owner = 1} {
  // CHECK: ptx.var ".extern .shared .align 16 .b8 smem[]"
  // GENERIC: "ptx.var"() <{sym_name = "smem", declared = #ptx.variable<".extern .shared .align 16 .b8 smem[]">}>
  // PTX: .extern .shared .align 16 .b8 smem[];
  ptx.var ".extern .shared .align 16 .b8 smem[]"
  // CHECK: ptx.var ".global .v2 .f32 table[2][3] = {{[{][{]}}1, 2}}"
  // PTX: .global .v2 .f32 table[2][3] = {{[{][{]}}1, 2}};
  ptx.var ".global .v2 .f32 table[2][3] = {{1, 2}}"
  // CHECK: ptx.directive ".pragma \22nounroll\22;"
  // PTX: .pragma "nounroll";
  ptx.directive ".pragma \"nounroll\";"
  // CHECK: ptx.func extern @device(".param .b32 a") returns (".param .b32 r")
  // PTX:      .extern .func (.param .b32 r) device(
  // PTX-NEXT: .param .b32 a
  // PTX-NEXT: );
  ptx.func extern @device(".param .b32 a") returns (".param .b32 r")
  // CHECK: ptx.func entry visible @k(".param .u64 .ptr .global .align 16 x", ".param .align 64 .b8 map[128]") directives [".maxntid 128, 1, 1"] attributes {grid = [4 : i64, 1 : i64]} {
  // PTX:      .visible .entry k(
  // PTX-NEXT:     .param .u64 .ptr .global .align 16 x,
  // PTX-NEXT:     .param .align 64 .b8 map[128]
  // PTX-NEXT: )
  // PTX-NEXT: .maxntid 128, 1, 1
  // PTX-NEXT: {
  ptx.func entry visible @k(".param .u64 .ptr .global .align 16 x", ".param .align 64 .b8 map[128]") directives [".maxntid 128, 1, 1"] attributes {grid = [4, 1]} {
    // CHECK-NEXT: %r0, %r1, %r2, %r3 = ptx.reg b32 "%r"<4>
    // GENERIC: %r0, %r1, %r2, %r3 = "ptx.reg"() <{base = "%r", count = #builtin.int<4>}> : () -> (!ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>, !ptx.reg<b32>)
    // PTX-NEXT: .reg .b32 %r<4>;
    %r0, %r1, %r2, %r3 = ptx.reg b32 "%r"<4>
    // CHECK-NEXT: %{{.*}} = ptx.reg f32 "%f"<4>
    // PTX-NEXT: .reg .f32 %f<4>;
    %f0, %f1, %f2, %f3 = ptx.reg f32 "%f"<4>
    // CHECK-NEXT: %rd = ptx.reg b64 "%rd"
    // PTX-NEXT: .reg .b64 %rd;
    %rd = ptx.reg b64 "%rd"
    // CHECK-NEXT: = ptx.reg pred "%p"<2>
    // PTX-NEXT: .reg .pred %p<2>;
    %p0, %p1 = ptx.reg pred "%p"<2>
    // CHECK-NEXT: ptx.comment " the loop"
    // PTX-NEXT: // the loop
    ptx.comment " the loop"
    // CHECK-NEXT: ptx.label "LOOP"
    // PTX-NEXT: {{^}}LOOP:
    ptx.label "LOOP"
    // CHECK-NEXT: ptx.inst mov.u32 %r0, "%tid.x"
    // GENERIC: "ptx.inst"(%r0) <{opcode = "mov.u32", form = "?, %tid.x"}> : (!ptx.reg<b32>) -> ()
    // PTX-NEXT: mov.u32 %r0, %tid.x;
    ptx.inst mov.u32 %r0, "%tid.x"
    // CHECK-NEXT: ptx.inst mov.u32 %r1, @smem
    // PTX-NEXT: mov.u32 %r1, smem;
    ptx.inst mov.u32 %r1, @smem
    // CHECK-NEXT: ptx.inst mov.f32 %f0, "0f3F800000"
    // PTX-NEXT: mov.f32 %f0, 0f3F800000;
    ptx.inst mov.f32 %f0, "0f3F800000"
    // CHECK-NEXT: ptx.inst ld.shared.v2.b32 {%r2, _}, [%r1+16]
    // PTX-NEXT: ld.shared.v2.b32 {%r2, _}, [%r1+16];
    ptx.inst ld.shared.v2.b32 {%r2, _}, [%r1+16]
    // CHECK-NEXT: ptx.inst st.shared.f32 [%r1+-16], %f0
    // PTX-NEXT: st.shared.f32 [%r1+-16], %f0;
    ptx.inst st.shared.f32 [%r1+-16], %f0
    // CHECK-NEXT: ptx.inst setp.lt.and.s32 %p0|%p1, %r0, -1, "!"%p1
    // PTX-NEXT: setp.lt.and.s32 %p0|%p1, %r0, -1, !%p1;
    ptx.inst setp.lt.and.s32 %p0|%p1, %r0, -1, "!"%p1
    // CHECK-NEXT: ptx.inst mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f0, %f1, %f2, %f3}
    // PTX-NEXT: mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f0, %f1, %f2, %f3};
    ptx.inst mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f0, %f1, %f2, %f3}
    // CHECK-NEXT: ptx.scope {
    // CHECK-NEXT:   ptx.var ".param .align 4 .b8 out[4]"
    // CHECK-NEXT:   ptx.inst call.uni (@out), @device, (%r0, 3)
    // CHECK-NEXT: }
    // PTX-NEXT: {
    // PTX-NEXT: .param .align 4 .b8 out[4];
    // PTX-NEXT: call.uni (out), device, (%r0, 3);
    // PTX-NEXT: }
    ptx.scope {
      ptx.var ".param .align 4 .b8 out[4]"
      ptx.inst call.uni (@out), @device, (%r0, 3)
    }
    // CHECK-NEXT: ptx.inst "@!" %p0 bra @LOOP
    // GENERIC: "ptx.inst"(%p0) <{opcode = "bra", form = "LOOP", guard = "@!"}>
    // PTX-NEXT: @!%p0 bra LOOP;
    ptx.inst "@!" %p0 bra @LOOP
    // CHECK-NEXT: ptx.inst "@" %p0 ret ()
    // PTX-NEXT: @%p0 ret;
    ptx.inst "@" %p0 ret ()
    // CHECK-NEXT: ptx.inst bar.sync 0 attributes {why = "order"}
    // PTX-NEXT: bar.sync 0;
    ptx.inst bar.sync 0 attributes {why = "order"}
    // CHECK-NEXT: ptx.inst ret ()
    // PTX-NEXT: ret;
    // PTX-NEXT: }
    ptx.inst ret ()
  }
}
