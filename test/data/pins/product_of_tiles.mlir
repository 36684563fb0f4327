// target=sm_80

func.func @f(%A: tensor<37x45xf16>, %B: tensor<45x51xf16>) -> tensor<37x51xf32> {
      %zero = arith.constant 0.0 : f16
      %none = arith.constant 0.0 : f32
      %0 = tensor.empty() : tensor<5x3x8x16xf16>
      %1 = tensor.empty() : tensor<7x3x8x16xf16>
      %2 = tensor.empty() : tensor<5x7x8x8xf32>
      %3 = tensor.empty() : tensor<37x51xf32>
      %a = linalg.pack %A padding_value(%zero : f16) inner_dims_pos = [0, 1] inner_tiles = [8, 16] into %0
        : tensor<37x45xf16> -> tensor<5x3x8x16xf16>
      %b = linalg.pack %B padding_value(%zero : f16) outer_dims_perm = [1, 0] inner_dims_pos = [1, 0] inner_tiles = [8, 16]
        into %1 : tensor<45x51xf16> -> tensor<7x3x8x16xf16>
      %c = linalg.fill ins(%none : f32) outs(%2 : tensor<5x7x8x8xf32>) -> tensor<5x7x8x8xf32>
      %p = linalg.mmt4d ins(%a, %b : tensor<5x3x8x16xf16>, tensor<7x3x8x16xf16>) outs(%c : tensor<5x7x8x8xf32>) -> tensor<5x7x8x8xf32>
      %r = linalg.unpack %p inner_dims_pos = [0, 1] inner_tiles = [8, 8] into %3
        : tensor<5x7x8x8xf32> -> tensor<37x51xf32>
      return %r : tensor<37x51xf32>
    }
