// Planted in each step, while the GPU has nothing to do: 3 ms of a loop on the CPU and a sleep of
// 2 ms; in every fourth step a lock that another thread holds for 4 ms.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>
#include <unistd.h>
__global__ void scale(float *x, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < 200 && i < n; k++) x[i] = x[i] * by + 1e-6f;
}
namespace sim {
__attribute__((noinline)) double checksum(const std::vector<double> &v, double seed) {
  auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
  double s = seed;
  while (std::chrono::steady_clock::now() < until) for (double x : v) s = s * 0.999 + x;
  return s;
}
__attribute__((noinline)) void throttle() { usleep(2000); }
template <typename T> __attribute__((noinline)) void reorder(std::vector<T> &v) { std::reverse(v.begin(), v.end()); std::sort(v.begin(), v.end()); }
}
static std::mutex gate;
__attribute__((noinline)) void wait_for_writer() { std::lock_guard<std::mutex> hold(gate); }
int main() {
  const int n = 1 << 22; float *x; cudaMalloc(&x, n * sizeof(float)); cudaMemset(x, 0, n * sizeof(float));
  std::vector<double> v(4096); for (int i = 0; i < 4096; i++) v[i] = (i * 7919) % 4096;
  double s = 0; 
  for (int step = 0; step < 200; step++) {
    scale<<<n / 256, 256>>>(x, n, 1.0001f);
    cudaDeviceSynchronize();
    s = sim::checksum(v, s);
    sim::throttle();
    sim::reorder(v);
    if (step % 4 == 0) {
      std::thread writer([] { std::lock_guard<std::mutex> hold(gate); usleep(4000); });
      usleep(200); wait_for_writer(); writer.join();
    }
    scale<<<n / 256, 256>>>(x, n, 0.9999f);
  }
  cudaDeviceSynchronize(); printf("%g\n", s); cudaFree(x); return 0;
}
