// examples/package/generate.cpp: continues a text with a packaged GPT: generate generate.ocl PROMPT [TOKENS]
//
// The keys and values of earlier tokens stay on the device between the calls. A token is a byte.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "ocl_run.hpp"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: generate generate.ocl PROMPT [TOKENS]\n");
    return 2;
  }
  try {
    const std::string prompt = argv[2];
    const int count = argc > 3 ? std::atoi(argv[3]) : 32;
    ocl_run::Model model(argv[1]);
    const std::vector<int64_t> tokens(prompt.begin(), prompt.end());
    const int64_t length = static_cast<int64_t>(tokens.size());
    // The next token and its position. Both stay on the device; decode takes them as they are.
    std::vector<ocl_run::Value> next = model.call("prefill", {model.tensor({1, length}, tokens)});
    for (int i = 0; i < count; ++i) {
      std::printf("%lld ", static_cast<long long>(next[0].tensor().read<int64_t>()[0]));
      if (i + 1 < count) next = model.call("decode", next);
    }
    std::printf("\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "generate: %s\n", error.what());
    return 1;
  }
  return 0;
}
