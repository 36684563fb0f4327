// RUN: warploom-opt %s -p 'warp-set-target{arch=sm_90a},warp-raise-matmul,warp-schedule{cta=16,16,32 warp=16,16 stages=1},warp-outline,warp-tile,warp-fp8-as-f16' | filecheck %s
// RUN: warploom-opt %s -p 'warp-set-target{arch=sm_90a},warp-raise-matmul,warp-schedule{cta=16,16,32 warp=16,16 stages=1},warp-outline,warp-tile,warp-fp8-as-f16,convert-warp-to-ptx' -t ptx | filecheck %s --check-prefix=PTX
// RUN: warploom-opt %s -p 'warp-set-target{arch=sm_89},warp-raise-matmul,warp-schedule{cta=16,16,32 warp=16,16 stages=1 fp8_as=none},warp-outline,warp-tile,warp-fp8-as-f16' | filecheck %s --check-prefix=SM89

// sm_90 multiplies no 8-bit floats: two f16 products of each step, of the first two and of the last two of every four
// neighbours along k. Operands are widened where a product first reads them.

func.func @f(%A: memref<16x32xf8E4M3FN>, %B: memref<16x32xf8E5M2>, %C: memref<16x16xf32>) {
  linalg.matmul indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
    ins(%A, %B : memref<16x32xf8E4M3FN>, memref<16x32xf8E5M2>) outs(%C : memref<16x16xf32>)
  return
}

// CHECK:      gpu.func {{.*}} mma = m16n8k32, stages = 1, swizzle = 128, group = 8, accumulate = f32, fp8_as = f16>
// CHECK:      %[[A:\w+]] = warp.load {{.*}}matrices{{.*}} -> !warp.fragment<a, 16x32xf8E4M3FN, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
// CHECK-NEXT: %[[B:\w+]] = warp.load {{.*}}matrices{{.*}} -> !warp.fragment<b, 32x16xf8E5M2, [r2 r3 c0 c1 c2 | r0 r1 r4]>
// CHECK-NEXT: %[[AW:\w+]] = warp.convert %[[A]] : {{.*}} to !warp.fragment<a, 16x32xf16, [c2 c3 r0 r1 r2 | c0 c1 r3 c4]>
// CHECK-NEXT: %[[AH:\w+]] = warp.convert_layout %[[AW]] : {{.*}} to !warp.fragment<a, 16x32xf16, [c2 c3 r0 r1 r2 | c0 r3 c4 c1]>
// CHECK-NEXT: %[[BW:\w+]] = warp.convert %[[B]] : {{.*}} to !warp.fragment<b, 32x16xf16, [r2 r3 c0 c1 c2 | r0 r1 r4]>
// CHECK-NEXT: %[[BH:\w+]] = warp.convert_layout %[[BW]] : {{.*}} to !warp.fragment<b, 32x16xf16, [r2 r3 c0 c1 c2 | r0 r4 r1]>
// CHECK-NEXT: warp.mma m16n8k16 %[[AH]], %[[BH]], %

// PTX:      .version 8.1
// PTX:      // warp.convert: e4m3 to f16
// PTX-NEXT: // warp.convert: e5m2 to f16
// PTX-NEXT: // warp.mma: multiply 16x16x32 with m16n8k16
// PTX-NEXT: mov.b32 {%h0, %h1}, %[[R:\w+]];
// PTX-NEXT: cvt.rn.f16x2.e4m3x2 %[[A0:\w+]], %h0;
// PTX:      cvt.rn.f16x2.e4m3x2 %{{\w+}}, %h6;
// PTX-NEXT: mov.b32 {%[[L:\w+]], %[[H:\w+]]}, %[[B:\w+]];
// PTX-NEXT: cvt.rn.f16x2.e5m2x2 %[[B0:\w+]], %[[L]];
// PTX-NEXT: mov.b32
// PTX-NEXT: cvt.rn.f16x2.e5m2x2 %[[B1:\w+]],
// PTX-NEXT: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{.*}}, {%[[A0]], {{.*}}}, {%[[B0]], %[[B1]]}
// PTX:      mov.b32 {%[[L]], %[[H]]}, %[[B]];
// PTX-NEXT: cvt.rn.f16x2.e5m2x2 %{{.*}}, %[[H]];
// PTX-NOT:  add{{.*}}f32

// SM89-NOT: warp.convert
// SM89:     warp.mma m16n8k32

// Left out, the step multiplies 8-bit floats as they are; ptxas emulates that.
// RUN: warploom-opt %s -p 'warp-set-target{arch=sm_90a},warp-raise-matmul,warp-schedule{cta=16,16,32 warp=16,16 stages=1},warp-outline,warp-tile,convert-warp-to-ptx' -t ptx | filecheck %s --check-prefix=LEFT
// LEFT-NOT: cvt.rn
// LEFT:     mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32
