// nvcc -lineinfo -arch=sm_90 -ptx kernels.cu -o nvcc-13.0-sm90.ptx

__device__ __noinline__ float powers(float x, int n) {
    for (int i = 0; i < n; ++i) x = x * x + 1.0f;
    return x;
}

__device__ __forceinline__ float twice(float x) {
    return powers(x, 3) * 2.0f;
}

extern "C" __global__ void __launch_bounds__(256, 2) table(const float* __restrict__ x, float* y, int n) {
    __shared__ float tile[256];
    __shared__ double few[3];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    if (threadIdx.x < 3) few[threadIdx.x] = n;
    __syncthreads();
    float sum = few[n % 3];
    for (int j = 0; j < n; ++j)
        for (int k = 0; k < j; ++k)
            sum += twice(tile[(k * j) & 255]);
    if (i < n) y[i] = sum;
}

extern "C" __global__ void copy4(const float4* __restrict__ x, float4* y, int n) {
    extern __shared__ float4 buffer[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) buffer[threadIdx.x] = __ldg(x + i);
    __syncthreads();
    if (i < n) y[i] = buffer[threadIdx.x ^ 1];
}

extern "C" __global__ void waits(unsigned* y, unsigned barrier, unsigned phase) {
    asm volatile(
        "{\n .reg .pred P;\n AGAIN: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n"
        " @P bra.uni DONE; bra.uni AGAIN;\n DONE: }" ::"r"(barrier), "r"(phase));
    asm volatile(
        "{\n .reg .pred P;\n AGAIN: mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n"
        " @P bra.uni DONE; bra.uni AGAIN;\n DONE: }" ::"r"(barrier + 8), "r"(phase));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n cp.async.commit_group;\n cp.async.wait_group 0;" ::"r"(barrier), "l"(y));
    y[threadIdx.x] = atomicCAS(y, 1u, 2u);
}
