/* examples/package/digits.c: reads handwritten digits: digits digits.ocl < images.txt

   Each line of the input is an image: 64 numbers from 0 to 16. The program prints a digit for each. */
#include <stdio.h>
#include <stdlib.h>

#include "ocl_run.h"

enum { MOST = 1024 };

static void check(ocl_status status) {
  if (status == OCL_OK) return;
  fprintf(stderr, "digits: %s\n", ocl_error());
  exit(1);
}

int main(int argc, char** argv) {
  static float pixels[MOST * 64];
  static int64_t digits[MOST];
  int count = 0;
  if (argc != 2) {
    fprintf(stderr, "usage: digits digits.ocl < images.txt\n");
    return 2;
  }
  while (count < MOST * 64 && scanf("%f", &pixels[count]) == 1) ++count;
  const int64_t sizes[3] = {count / 64, 8, 8};

  ocl_model* model = NULL;
  ocl_tensor* images = NULL;
  check(ocl_open(argv[1], NULL, &model));
  check(ocl_tensor_create(model, OCL_F32, 3, sizes, pixels, &images));
  ocl_value argument = {OCL_TENSOR, images, 0, 0}, result;
  check(ocl_call(model, 0, &argument, 1, &result, 1));
  check(ocl_tensor_read(result.tensor, digits, (size_t)sizes[0] * sizeof(int64_t)));
  for (int64_t i = 0; i < sizes[0]; ++i) printf("%d\n", (int)digits[i]);
  ocl_tensor_release(result.tensor);
  ocl_tensor_release(images);
  ocl_close(model);
  return 0;
}
