// nvcc -lineinfo -arch=sm_100 -ptx wide.cu -o nvcc-13.0-sm100.ptx

struct alignas(32) Eight {
    float part[8];
};

extern "C" __global__ void wide(const double4_32a* __restrict__ x, double4_32a* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void wide_struct(const Eight* x, Eight* y) {
    int i = threadIdx.x;
    Eight value = x[i];
    for (float& part : value.part) part *= 2;
    y[i] = value;
}

extern "C" __global__ void pictures(cudaTextureObject_t texture, cudaSurfaceObject_t surface, float4* y) {
    int i = threadIdx.x;
    float4 sum = tex2D<float4>(texture, i, 0.5f), texel;
    sum.x += tex1Dfetch<float>(texture, i);
    sum.z += tex2Dgather<float4>(texture, i, 2.0f, 1).x;
    surf2Dread(&texel, surface, i * 16, 3);
    surf2Dwrite(sum, surface, i * 16, 0);
    short small;
    surf1Dread(&small, surface, i * 2);
    y[i] = make_float4(sum.x + texel.x, sum.y, sum.z, texel.w + small);
}
