/* Sums of parts of gaps by site, in one pass: site_sums.py, compiled. */
#include <stdint.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* The parts of one gap are adjacent, so a gap is new at a site if it is not the last one there.
 * `last_gap` has a -1, and each of the sums a zero, per site; `steady` a flag per gap. */
EXPORTED void traceview_sum_sites(const int64_t *site, const int32_t *gap, const int64_t *start,
                                  const int64_t *end, int64_t parts, const uint8_t *steady,
                                  int32_t *last_gap, int64_t *gaps, int64_t *time_ns,
                                  int64_t *steady_gaps, int64_t *steady_ns)
{
    for (int64_t part = 0; part < parts; part++) {
        int64_t at = site[part], often = steady[gap[part]], length = end[part] - start[part];
        int64_t other = last_gap[at] != gap[part];
        last_gap[at] = gap[part];
        gaps[at] += other;
        time_ns[at] += length;
        steady_gaps[at] += other & often;
        steady_ns[at] += often ? length : 0;
    }
}
