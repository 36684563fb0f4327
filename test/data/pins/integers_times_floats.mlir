// target=sm_90a

func.func @f(%A: memref<21x7xi8>, %B: memref<7x13xi8>, %C: memref<21x13xf32>) {
      linalg.matmul ins(%A, %B : memref<21x7xi8>, memref<7x13xi8>) outs(%C : memref<21x13xf32>) return }
