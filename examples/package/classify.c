/* examples/package/classify.c: prints the five best classes of an image.

   classify classify.ocl image.ppm [labels.txt]

   The image is a binary PPM (P6). Line i of labels.txt names class i. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ocl_run.h"

static void check(ocl_status status) {
  if (status == OCL_OK) return;
  fprintf(stderr, "classify: %s\n", ocl_error());
  exit(1);
}

/* Reads a PPM. Returns its bytes in the order row, column, colour; NULL if it is none. */
static unsigned char* read_image(const char* path, int64_t sizes[3]) {
  FILE* file = fopen(path, "rb");
  int width = 0, height = 0, most = 0;
  unsigned char* pixels = NULL;
  if (file == NULL) return NULL;
  if (fscanf(file, "P6 %d %d %d", &width, &height, &most) == 3 && most == 255 && width > 0 && height > 0 && width <= 16384 &&
      height <= 16384 && fgetc(file) != EOF) {
    const size_t bytes = (size_t)width * (size_t)height * 3;
    pixels = malloc(bytes);
    if (pixels != NULL && fread(pixels, 1, bytes, file) != bytes) {
      free(pixels);
      pixels = NULL;
    }
  }
  fclose(file);
  sizes[0] = height;
  sizes[1] = width;
  sizes[2] = 3;
  return pixels;
}

/* Writes line `number` of a file of labels to `name`, or the number itself if there is no such line. */
static void label_of(const char* path, long number, char name[256]) {
  FILE* file = path ? fopen(path, "r") : NULL;
  snprintf(name, 256, "class %ld", number);
  for (long i = 0; file != NULL && i <= number; ++i) {
    char line[256];
    if (fgets(line, sizeof line, file) == NULL) break;
    line[strcspn(line, "\n")] = 0;
    if (i == number) snprintf(name, 256, "%s", line);
  }
  if (file != NULL) fclose(file);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: classify classify.ocl image.ppm [labels.txt]\n");
    return 2;
  }
  int64_t sizes[3];
  unsigned char* pixels = read_image(argv[2], sizes);
  if (pixels == NULL) {
    fprintf(stderr, "classify: %s is no binary PPM\n", argv[2]);
    return 1;
  }
  ocl_model* model = NULL;
  check(ocl_open(argv[1], NULL, &model));
  ocl_tensor* image = NULL;
  check(ocl_tensor_create(model, OCL_U8, 3, sizes, pixels, &image));
  free(pixels);

  ocl_value argument = {OCL_TENSOR, image, 0, 0}, results[2];
  check(ocl_call(model, 0, &argument, 1, results, 2));
  float probability[5];
  int64_t label[5];
  check(ocl_tensor_read(results[0].tensor, probability, sizeof probability));
  check(ocl_tensor_read(results[1].tensor, label, sizeof label));
  for (int i = 0; i < 5; ++i) {
    char name[256];
    label_of(argc > 3 ? argv[3] : NULL, (long)label[i], name);
    printf("%5.1f %%  %s\n", 100 * probability[i], name);
  }
  ocl_tensor_release(results[0].tensor);
  ocl_tensor_release(results[1].tensor);
  ocl_tensor_release(image);
  ocl_close(model);
  return 0;
}
