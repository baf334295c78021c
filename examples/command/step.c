/* One noisy sum of clipped gradients over pipes. Build: cc -O2 -o step step.c -lm; run: ./step CLIP NOISE_MULTIPLIER.
   Written for a little-endian machine, as the protocol is. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint64_t word(void) { /* SplitMix64 */
    uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

static double normal(void) { /* Box-Muller on 53 bits, never log(0) */
    double u = ((word() >> 11) + 1) * 0x1p-53, v = (word() >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

int main(int count, char **words) {
    if (count != 3) return fprintf(stderr, "usage: step CLIP NOISE_MULTIPLIER\n"), 2;
    double clip = atof(words[1]), deviation = atof(words[2]) * clip, *total = NULL;
    struct { char kind[4]; uint32_t a, b; } header;
    uint32_t width = 0;
    while (fread(&header, 12, 1, stdin) == 1) {
        if (!memcmp(header.kind, "DATA", 4)) {
            width = header.b;
            total = calloc(width, sizeof *total);
            float *row = malloc(4 * (size_t)width);
            for (uint32_t i = 0; i < header.a; i++) {
                double square = 0;
                if (fread(row, 4, width, stdin) != width) return 1;
                for (uint32_t j = 0; j < width; j++) square += (double)row[j] * row[j];
                double scale = sqrt(square) > clip ? clip / sqrt(square) : 1;
                for (uint32_t j = 0; j < width; j++) total[j] += scale * row[j];
            }
            free(row);
        } else if (!memcmp(header.kind, "DRAW", 4)) {
            uint64_t *seeds = malloc(8 * (size_t)header.a);
            if (fread(seeds, 8, header.a, stdin) != header.a) return 1;
            for (uint32_t i = 0; i < header.a; i++) {
                state = seeds[i];
                for (uint32_t j = 0; j < width; j++) {
                    float update = (float)(total[j] + deviation * normal());
                    fwrite(&update, 4, 1, stdout);
                }
            }
            free(seeds);
            fflush(stdout);
        } else return fprintf(stderr, "unknown request %.4s\n", header.kind), 1;
    }
    return 0;
}
