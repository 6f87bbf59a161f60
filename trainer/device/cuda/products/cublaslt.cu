// cuBLASLt, loaded at the first product: libcublasLt.so.13 from the loader's path, from beside the
// plug-in, or from a Python wheel. cuBLASLt is column-major, where a row-major matrix reads as its
// transpose, so it computes Cᵀ (n, m) = Bᵀ · Aᵀ; its bias per row is our bias per column.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "trainer/device/cuda/open_library.h"
#include "trainer/device/cuda/products/matmul.h"

namespace trainer {
namespace {

constexpr const char* k_cublas_library = "libcublasLt.so.13";

/// The library's functions.
struct Lt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmulDescCreate) make_description;
  decltype(&cublasLtMatmulDescSetAttribute) set_description;
  decltype(&cublasLtMatrixLayoutCreate) make_layout;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout;
  decltype(&cublasLtMatmulPreferenceCreate) make_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;
};
Lt lt;

struct Plan {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t b = nullptr; ///< Its first operand.
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  Matmul::Epilogue epilogue = Matmul::Epilogue::none;
  bool accumulate = false;
  bool is_fp8 = false;
};

/// The library's epilogue for ours; 0: it has none, or one slower than a kernel of our own after
/// it.
int library_epilogue(const MatmulShape& s) {
  using Epilogue = Matmul::Epilogue;
  switch (s.epilogue) {
  case Epilogue::none:
    return CUBLASLT_EPILOGUE_DEFAULT;
  case Epilogue::bias:
    return CUBLASLT_EPILOGUE_BIAS;
  case Epilogue::relu_bias:
    return CUBLASLT_EPILOGUE_RELU_BIAS;
  case Epilogue::bias_gradient: // The library overwrites it, and in C's type.
    return s.accumulate || s.type != DType::f32 || s.factor_type != DType::f32
               ? 0
               : CUBLASLT_EPILOGUE_BGRADB;
  case Epilogue::gelu_tanh_bias:
    return s.type == DType::f32 ? 0 : CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  case Epilogue::dgelu_tanh:
    return s.type == DType::f32 || s.fp8 != Matmul::Fp8::none ? 0 : CUBLASLT_EPILOGUE_DGELU;
  default:
    return 0;
  }
}

cudaDataType_t library_type(DType type) { // Not of FP8.
  return type == DType::bf16 ? CUDA_R_16BF : type == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

/// Makes the calls in order; stops at the first error and returns it.
class Steps {
 public:
  template <typename Function, typename... Arguments>
  Steps& then(Function function, Arguments... arguments) {
    if (error_ == CUBLAS_STATUS_SUCCESS) {
      error_ = function(arguments...);
    }
    return *this;
  }
  cublasStatus_t error() const { return error_; }

 private:
  cublasStatus_t error_ = CUBLAS_STATUS_SUCCESS;
};

int handle_of(int gpu, cublasLtHandle_t* handle) {
  if (const cudaError_t error = cudaSetDevice(gpu); error != cudaSuccess) {
    return error;
  }
  return lt.create(handle); // One for each plan: there are few, and a handle costs little.
}

int plan(const CudaStreamHandle* stream, const MatmulShape& s, void** made) {
  *made = nullptr;
  const int epilogue = library_epilogue(s);
  if (epilogue == 0) {
    return 0;
  }
  auto* p = new Plan{};
  p->epilogue = s.epilogue;
  p->accumulate = s.accumulate;
  p->is_fp8 = s.fp8 != Matmul::Fp8::none;
  if (const int error = handle_of(stream->gpu, &p->handle); error != 0) {
    delete p;
    return error;
  }
  const cublasOperation_t first = s.b_is_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = s.a_is_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
  const std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK & ~CUBLASLT_REDUCTION_SCHEME_INPLACE;
  cublasLtMatmulPreference_t preference = nullptr;
  Steps steps;
  const cudaDataType_t type = library_type(s.type);
  const cudaDataType_t b_type = p->is_fp8 ? CUDA_R_8F_E4M3 : library_type(s.factor_type);
  const cudaDataType_t a_type = s.fp8 == Matmul::Fp8::backward ? CUDA_R_8F_E5M2 : b_type;
  steps.then(lt.make_description, &p->description,
             s.is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const auto describe = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    steps.then(lt.set_description, p->description, what, &value, sizeof value);
  };
  describe(CUBLASLT_MATMUL_DESC_TRANSA, first);
  describe(CUBLASLT_MATMUL_DESC_TRANSB, second);
  describe(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  describe(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
           static_cast<std::int32_t>(p->is_fp8 ? CUDA_R_16BF : type));
  if (p->is_fp8) { // The scales' own addresses come with each product.
    describe(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, stream->workspace->memory());
    describe(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, stream->workspace->memory());
    // Sums of gradients are promoted to float32 on the way, as Transformer Engine has it.
    describe(CUBLASLT_MATMUL_DESC_FAST_ACCUM,
             static_cast<std::int8_t>(s.fp8 == Matmul::Fp8::forward ? 1 : 0));
  }
  if (s.epilogue == Matmul::Epilogue::gelu_tanh_bias ||
      s.epilogue == Matmul::Epilogue::dgelu_tanh) {
    describe(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(s.c_row));
  }
  // Column-major layouts: a row-major (r, c) is (c, r) with the row stride as leading dimension.
  const auto lay = [&](cublasLtMatrixLayout_t* layout, cudaDataType_t of, std::size_t rows,
                       std::size_t columns, std::size_t row, std::size_t apart) {
    const auto count = static_cast<std::int32_t>(s.batch);
    const auto offset = static_cast<std::int64_t>(apart);
    steps.then(lt.make_layout, layout, of, columns, rows, static_cast<std::int64_t>(row));
    if (s.batch > 1) {
      steps.then(lt.set_layout, *layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count)
          .then(lt.set_layout, *layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &offset,
                sizeof offset);
    }
  };
  lay(&p->b, b_type, s.b_is_turned ? s.n : s.k, s.b_is_turned ? s.k : s.n, s.b_row, s.b_batch);
  lay(&p->a, a_type, s.a_is_turned ? s.k : s.m, s.a_is_turned ? s.m : s.k, s.a_row, s.a_batch);
  lay(&p->c, type, s.m, s.n, s.c_row, s.c_batch);
  steps.then(lt.make_preference, &preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    steps.then(lt.set_preference, preference, what, &value, sizeof value);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, Workspace::k_bytes);
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.b_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.a_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.c_alignment);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.c_alignment);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  steps.then(lt.heuristic, p->handle, p->description, p->b, p->a, p->c, p->c, preference, 1, &best,
             &found);
  if (preference != nullptr) {
    lt.destroy_preference(preference);
  }
  if (found > 0 && best.state == CUBLAS_STATUS_SUCCESS) {
    p->algorithm = best.algo;
    *made = p; // Plans live as long as the program.
  }
  // The library has more than one code for "not supported".
  return steps.error() == CUBLAS_STATUS_ALLOC_FAILED ? cudaErrorMemoryAllocation : cudaSuccess;
}

int run(void* plan, const CudaStreamHandle* stream, const MatmulMemory& s) {
  auto& p = *static_cast<Plan*>(plan);
  if (const cudaError_t error = cudaSetDevice(stream->gpu); error != cudaSuccess) {
    return error;
  }
  // Belongs to the call, not to the plan: two threads may use a plan at once.
  cublasLtMatmulDescOpaque_t description = *p.description;
  Steps steps;
  const auto point = [&](cublasLtMatmulDescAttributes_t what, const void* memory) {
    steps.then(lt.set_description, &description, what, &memory, sizeof memory);
  };
  if (p.is_fp8) {
    point(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, s.b_scale);
    point(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, s.a_scale);
  }
  if (has_bias(p.epilogue)) {
    point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, s.with);
  }
  switch (p.epilogue) {
  case Matmul::Epilogue::bias_gradient:
    point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, s.beside);
    break;
  case Matmul::Epilogue::gelu_tanh_bias:
    point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, s.beside);
    break;
  case Matmul::Epilogue::dgelu_tanh:
    point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, s.with);
    break;
  default:
    break;
  }
  const float one = 1;
  const float beta = p.accumulate ? 1 : 0;
  steps.then(lt.matmul, p.handle, &description, &one, s.b, p.b, s.a, p.a, &beta, s.added, p.c, s.c,
             p.c, &p.algorithm, stream->workspace->memory(), Workspace::k_bytes, stream->stream);
  return steps.error() == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

/// Null if a function is missing.
const Blas* load() {
  std::string why; // Not reported: the device line names what multiplies instead.
  void* library = open_library(k_cublas_library, why);
  bool is_whole = library != nullptr;
  const auto find = [&](auto& function, const char* name) {
    if (is_whole) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      is_whole = function != nullptr;
    }
  };
  find(lt.create, "cublasLtCreate");
  find(lt.make_description, "cublasLtMatmulDescCreate");
  find(lt.set_description, "cublasLtMatmulDescSetAttribute");
  find(lt.make_layout, "cublasLtMatrixLayoutCreate");
  find(lt.set_layout, "cublasLtMatrixLayoutSetAttribute");
  find(lt.make_preference, "cublasLtMatmulPreferenceCreate");
  find(lt.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  find(lt.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  find(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(lt.matmul, "cublasLtMatmul");
  static const Blas blas = {plan, run};
  return is_whole ? &blas : nullptr;
}

} // namespace

const Blas* find_blas() {
  static const Blas* const found = load();
  return found;
}

} // namespace trainer
