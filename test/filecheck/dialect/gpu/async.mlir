builtin.module {
  func.func @f(%m: memref<2x?xf32>, %i: index) {
    %0 = gpu.wait async
    %a, %t = gpu.alloc async [%0] (%i) : memref<?xf32>
    %1 = gpu.memcpy async [%0] %a, %a : memref<?xf32>, memref<?xf32>
    gpu.memcpy %a, %a : memref<?xf32>, memref<?xf32>
    gpu.dealloc %a : memref<?xf32>
    gpu.wait [%1]
    func.return
  }
}

