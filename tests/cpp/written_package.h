// tests/cpp/written_package.h: writes a small package without Python.
#pragma once

#include <doctest/doctest.h>
#include <sqlite3.h>

#include <string>
#include <vector>

#include "csrc/cache/package_file.h"
#include "csrc/ir/builder.h"

/// A graph with a product, a sum, a gather and a size symbol.
inline std::string graph_text() {
  ocl::ir::Builder b;
  const ocl::ir::IndexExpr rows = b.size_symbol({1, 64});
  const ocl::ir::Value x = b.input(ocl::ir::DType::kF32, {rows, 8}, {8, 1}, false, false);
  const ocl::ir::Value w = b.input(ocl::ir::DType::kF32, {8, 4}, {4, 1}, true, false);
  const ocl::ir::Value state = b.input(ocl::ir::DType::kF32, {4}, {1}, false, false);
  const ocl::ir::Value y = b.contract(b.unsqueeze(x, 0), b.unsqueeze(w, 0), ocl::ir::DType::kF32);
  const ocl::ir::Value shifted = b.op("add", {b.select(y, 0, 0), state});
  b.output(shifted, ocl::ir::contiguous_strides(shifted.sizes));
  b.output(b.reduce("sum", shifted, {0}, false)[0], {1});
  return b.finish().str();
}

inline void run(sqlite3* db, const std::string& sql) {
  char* message = nullptr;
  const int code = sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message);
  INFO(sql << ": " << (message ? message : ""));
  REQUIRE(code == SQLITE_OK);
}

inline std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "''" : std::string(1, c);
  return result + "'";
}

inline std::string hex(const std::string& bytes) {
  std::string result = "x'";
  for (const char c : bytes)
    for (const int digit : {(c >> 4) & 15, c & 15}) result += "0123456789abcdef"[digit];
  return result + "'";
}

inline std::string checksum(const std::string& bytes) {
  return std::to_string(ocl::cache::package_checksum(bytes.data(), bytes.size()));
}

/// Writes a package with one method of this graph. Its weight is 8 x 4 numbers and its state 4, all of them 1.
inline void write_package(const std::string& path, const std::string& graph) {
  sqlite3* db = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &db) == SQLITE_OK);
  const std::vector<float> ones(8 * 4 + 4, 1.0f);
  const std::string data(reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float));
  run(db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;");
  run(db, "PRAGMA application_id=" + std::to_string(ocl::cache::kPackageId) +
              "; PRAGMA user_version=" + std::to_string(ocl::cache::kPackageVersion) +
              ";"
              "CREATE TABLE meta(key TEXT, value TEXT); CREATE TABLE storages(id INTEGER PRIMARY KEY, bytes INTEGER);"
              "CREATE TABLE parts(storage INTEGER, part INTEGER, data BLOB, checksum INTEGER);"
              "CREATE TABLE tensors(id, name, storage, first, dtype, sizes, strides, written);"
              "CREATE TABLE methods(id, name, structure, graph, checksum);"
              "CREATE TABLE arguments(method, position, name, kind, dtype, sizes);"
              "CREATE TABLE symbols(method, position, argument, dim);"
              "CREATE TABLE conditions(method, position, expression, message);"
              "CREATE TABLE inputs(method, position, kind, number);"
              "CREATE TABLE results(method, position, name, kind, value); CREATE TABLE kernels(key, binary, checksum);"
              "INSERT INTO meta VALUES('producer', 'a test'); INSERT INTO storages VALUES(0, 144);"
              "INSERT INTO tensors VALUES(0, 'w', 0, 0, 'f32', '8, 4', '4, 1', 0), (1, 's', 0, 32, 'f32', '4', '1', 1);"
              "INSERT INTO arguments VALUES(0, 0, 'x', 'tensor', 'f32', 's0, 8');"
              "INSERT INTO symbols VALUES(0, 0, 0, 0); INSERT INTO conditions VALUES(0, 0, 's0 - 1', 'at least 1');"
              "INSERT INTO inputs VALUES(0, 0, 'argument', 0), (0, 1, 'tensor', 0), (0, 2, 'tensor', 1);"
              "INSERT INTO results VALUES(0, 0, 'y', 'output', '0'), (0, 1, 'sum', 'output', '1'),"
              "(0, 2, 'n', 'integer', 's0*2'), (0, 3, 'x', 'argument', '0');");
  run(db, "INSERT INTO parts VALUES(0, 0, " + hex(data) + ", " + checksum(data) + ")");
  run(db, "INSERT INTO methods VALUES(0, 'forward', 'tuple', " + quoted(graph) + ", " + checksum(graph) + ")");
  sqlite3_close(db);
}
