# torch_ocl_compile/user_kernel/eig.py: the op ocl.eig, eigenvalues and eigenvectors of general matrices, one work-item a matrix.
"""Householder reflections make a matrix upper Hessenberg. Then QR steps with shifts, implicit ones, make it upper triangular: for real
matrices two shifts at once in real arithmetic, which leave a block of 2 x 2 on the diagonal for each pair of complex eigenvalues.
Eigenvalues come in the order of the diagonal, as LAPACK's do. An eigenvector has the length 1, and a complex one a real largest element.
Source: Golub and Van Loan, "Matrix Computations", chapter 7."""

from __future__ import annotations

from typing import Any

import torch

from torch_ocl_compile.user_kernel.kernel import kernel

STEPS = 40  # QR steps for each eigenvalue, at most. Two to four are usual.

ARITHMETIC = """
inline Z times(Z a, Z b) { return (Z)(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
inline Z conj(Z a) { return (Z)(a.x, -a.y); }
inline T size(Z a) { return hypot(a.x, a.y); }
inline Z over(Z a, Z b) {
  const T scale = 1 / fmax(fabs(b.x), fabs(b.y)), u = b.x * scale, w = b.y * scale;
  return times(a, (Z)(u, -w)) * (scale / (u * u + w * w));
}
inline Z root(Z a) {   // The principal square root.
  const T r = sqrt((size(a) + fabs(a.x)) / 2);
  if (r == 0) return (Z)(0, 0);
  return a.x >= 0 ? (Z)(r, a.y / (2 * r)) : (Z)(fabs(a.y) / (2 * r), copysign(r, a.y));
}
inline T size1(Z a) { return fabs(a.x) + fabs(a.y); }
#define H(i, j) h[(i) * n + (j)]
#define V(i, j) v[(i) * n + (j)]
"""

HESSENBERG = """
// Reflects by I - factor w w^H, w in rows or columns first .. first + count - 1: H from the left and the right, V from the right.
inline void reflect(__global Z* h, __global Z* v, const long n, long first, long count, const Z* w, T factor, long from, long to) {
  for (long j = from; j < n; ++j) {
    Z sum = 0;
    for (long i = 0; i < count; ++i) sum += times(conj(w[i]), H(first + i, j));
    for (long i = 0; i < count; ++i) H(first + i, j) -= factor * times(w[i], sum);
  }
  for (long i = 0; i < to + n; ++i) {
    __global Z* row = (i < to ? h + i * n : v + (i - to) * n) + first;
    Z sum = 0;
    for (long j = 0; j < count; ++j) sum += times(row[j], w[j]);
    for (long j = 0; j < count; ++j) row[j] -= factor * times(sum, conj(w[j]));
  }
}

// Sets w to the reflection that makes x a multiple of the first unit vector, and returns its factor; 0 if x is one already.
inline T reflection(const Z* x, long count, Z* w) {
  T most = 0, below = 0, sum = 0;
  for (long i = 0; i < count; ++i) most = fmax(most, size1(x[i]));
  for (long i = 0; i < count; ++i) {
    w[i] = most == 0 ? (Z)(0, 0) : x[i] / most;
    below = i == 1 ? 0 : below, sum += dot(w[i], w[i]), below += dot(w[i], w[i]);
  }
  if (count < 2 || !(below > 0)) return 0;
  const T head = size(w[0]), length = sqrt(sum);
  w[0] += head == 0 ? (Z)(length, 0) : w[0] * (length / head);
  return 1 / (length * (length + head));
}

inline void hessenberg(__global Z* h, __global Z* v, const long n) {
  Z x[LARGEST], w[LARGEST];
  for (long k = 0; k + 2 < n; ++k) {
    const long count = n - 1 - k;
    for (long i = 0; i < count; ++i) x[i] = H(k + 1 + i, k);
    const T factor = reflection(x, count, w);
    if (factor != 0) reflect(h, v, n, k + 1, count, w, factor, k, n);
    for (long i = k + 2; i < n; ++i) H(i, k) = 0;
  }
}

// Returns the first row of the block that ends at row `last`: the element left of its diagonal is negligible.
inline long block_start(__global Z* h, const long n, long last) {
  long l = last;
  for (; l > 0; --l) {
    T near = size1(H(l, l)) + size1(H(l - 1, l - 1));
    if (near == 0) near = size1(H(l - 1, l)) + (l > 1 ? size1(H(l - 1, l - 2)) : 0) + (l < last ? size1(H(l + 1, l)) : 0);
    if (size1(H(l, l - 1)) <= EPSILON * near) break;
  }
  if (l > 0) H(l, l - 1) = 0;
  return l;
}
"""

# One shift, the eigenvalue of the last 2 x 2 block that is nearer to its last element. A step is a chain of reflections of two rows.
COMPLEX_STEPS = """
inline void triangular(__global Z* h, __global Z* v, const long n) {
  int step = 0;
  for (long last = n - 1; last > 0;) {
    const long l = block_start(h, n, last);
    if (l == last || ++step > MOST_STEPS) {
      H(last, last - 1) = 0;
      --last, step = 0;
      continue;
    }
    const Z a = H(last - 1, last - 1), d = H(last, last), mid = (a - d) / 2, bc = times(H(last - 1, last), H(last, last - 1));
    Z r = root(times(mid, mid) + bc);
    if (mid.x * r.x + mid.y * r.y < 0) r = -r;
    Z shift = size1(mid + r) == 0 ? d : d - over(bc, mid + r);
    if (step % 10 == 0) shift = d + (Z)((T)0.75 * size1(H(last, last - 1)), 0);
    Z x[2] = {H(l, l) - shift, H(l + 1, l)}, w[2];
    for (long k = l; k < last; ++k) {
      const T factor = reflection(x, 2, w);
      if (factor != 0) reflect(h, v, n, k, 2, w, factor, k > l ? k - 1 : l, min(k + 3, last + 1));
      if (k > l) H(k + 1, k - 1) = 0;
      if (k + 1 < last) x[0] = H(k + 1, k), x[1] = H(k + 2, k);
    }
  }
}
"""

# Two shifts, the eigenvalues of the last 2 x 2 block, or twice the nearer one if they are real. A step is a chain of reflections of
# three rows, the last one of two.
REAL_STEPS = """
// Makes the block at k, k + 1 upper triangular if its eigenvalues are real.
inline void split(__global Z* h, __global Z* v, const long n, long k) {
  const T a = H(k, k).x, b = H(k, k + 1).x, c = H(k + 1, k).x, d = H(k + 1, k + 1).x, mid = (a - d) / 2;
  const T most = fmax(fabs(mid), fmax(fabs(b), fabs(c)));
  const T inside = most == 0 ? 0 : (mid / most) * (mid / most) + (b / most) * (c / most);
  if (c == 0 || inside < 0) return;
  const T z = mid + copysign(most * sqrt(inside), mid), length = hypot(z, c), x = z / length, y = c / length;
  for (long j = k; j < n; ++j) {
    const T p = H(k, j).x, q = H(k + 1, j).x;
    H(k, j).x = x * p + y * q, H(k + 1, j).x = x * q - y * p;
  }
  for (long i = 0; i < k + 2 + n; ++i) {
    __global Z* row = (i < k + 2 ? h + i * n : v + (i - k - 2) * n) + k;
    const T p = row[0].x, q = row[1].x;
    row[0].x = x * p + y * q, row[1].x = x * q - y * p;
  }
  H(k + 1, k) = 0;
}

inline void triangular(__global Z* h, __global Z* v, const long n) {
  int step = 0;
  for (long last = n - 1; last > 0;) {
    const long l = block_start(h, n, last);
    if (l + 1 >= last || ++step > MOST_STEPS) {
      if (l + 1 == last) split(h, v, n, l);
      if (l + 1 != last) H(last, last - 1) = 0;
      last -= l + 1 == last ? 2 : 1, step = 0;
      continue;
    }
    T a = H(last - 1, last - 1).x, b = H(last - 1, last).x, c = H(last, last - 1).x, d = H(last, last).x;
    if (step % 10 == 0) {
      const T s = fabs(c) + fabs(H(last - 1, last - 2).x);
      a = (T)0.75 * s + d, d = a, b = (T)-0.4375 * s, c = s;
    }
    T sum = a + d, product = a * d - b * c;
    const T mid = (a - d) / 2, inside = mid * mid + b * c;
    if (inside >= 0) {   // The real eigenvalue that is nearer to d, twice.
      const T z = mid + copysign(sqrt(inside), mid), near = z == 0 ? d : d - b * c / z;
      sum = 2 * near, product = near * near;
    }
    const T e = H(l, l).x, f = H(l + 1, l + 1).x, g = H(l + 1, l).x;
    Z x[3] = {(Z)(e * (e - sum) + product + H(l, l + 1).x * g, 0), (Z)(g * (e + f - sum), 0), (Z)(g * H(l + 2, l + 1).x, 0)}, w[3];
    for (long k = l; k < last; ++k) {
      const long count = min(3L, last - k + 1);
      const T factor = reflection(x, count, w);
      if (factor != 0) reflect(h, v, n, k, count, w, factor, k > l ? k - 1 : l, min(k + 4, last + 1));
      if (k > l)
        for (long i = 1; i < count; ++i) H(k + i, k - 1) = 0;
      for (long i = 0; i < 3 && k + 1 + i <= last; ++i) x[i] = H(k + 1 + i, k);
    }
  }
}
"""

VECTORS = """
// Solves (H - value) x = 0 for the rows above `row`; x[row ..] is given. A divisor that is nearly 0 is replaced by `least`.
inline void substitute(__global const Z* h, const long n, long row, long end, Z value, T least, Z* x) {
  for (long i = row - 1; i >= 0; --i) {
    Z sum = 0, other = 0;
    for (long j = i + 1; j < end; ++j) sum -= times(H(i, j), x[j]);
    Z d = H(i, i) - value;
    const bool is_pair = i > 0 && size1(H(i, i - 1)) != 0;
    if (is_pair) {
      for (long j = i + 1; j < end; ++j) other -= times(H(i - 1, j), x[j]);
      const Z a = H(i - 1, i - 1) - value, b = H(i - 1, i), c = H(i, i - 1);
      Z determinant = times(a, d) - times(b, c);
      if (size(determinant) < least * least) determinant = (Z)(least * least, 0);
      x[i] = over(times(a, sum) - times(c, other), determinant);
      x[i - 1] = over(times(d, other) - times(b, sum), determinant);
    } else {
      x[i] = over(sum, size(d) < least ? (Z)(least, 0) : d);
    }
    const T most = fmax(size(x[i]), is_pair ? size(x[i - 1]) : 0);
    i -= is_pair;
    if (most > (T)1e6)
      for (long j = i; j < end; ++j) x[j] /= most;
  }
}

// Writes V x, scaled, as column k.
inline void write_vector(__global const Z* v, const long n, long end, const Z* x, bool turns, __global Z* vectors, long k) {
  T sum = 0, most = -1;
  Z largest = (Z)(1, 0);
  for (long i = 0; i < n; ++i) {
    Z made = 0;
    for (long j = 0; j < end; ++j) made += times(V(i, j), x[j]);
    vectors[i * n + k] = made;
    sum += dot(made, made);
    if (dot(made, made) > most) most = dot(made, made), largest = made;
  }
  const Z scale = turns ? conj(largest) / (size(largest) * sqrt(sum)) : (Z)(1 / sqrt(sum), 0);
  for (long i = 0; i < n; ++i) vectors[i * n + k] = times(vectors[i * n + k], scale);
}

__kernel void eig(__global const T* a,                                             // [batch, n, n, PARTS]
                  __global Z* values, __global Z* vectors, __global Z* work,       // [batch, n], [batch, n, n], [batch, 2, n, n]
                  const long n, const long batch) {
  const long matrix = get_global_id(0);
  if (matrix >= batch) return;
  __global Z *h = work + 2 * matrix * n * n, *v = h + n * n;
  a += matrix * n * n * PARTS, values += matrix * n, vectors += matrix * n * n;
  T norm = 0;
  for (long k = 0; k < n * n; ++k) {
    h[k] = (Z)(a[PARTS * k], PARTS == 2 ? a[PARTS * k + PARTS - 1] : 0);
    v[k] = (Z)(k % (n + 1) == 0, 0);
    norm = fmax(norm, size1(h[k]));
  }
  hessenberg(h, v, n);
  triangular(h, v, n);
  const T least = fmax(EPSILON * norm, SMALLEST);
  Z x[LARGEST];
  for (long k = 0; k < n; ++k) {
    if (k + 1 < n && size1(H(k + 1, k)) != 0) {
      const T mid = (H(k, k).x - H(k + 1, k + 1).x) / 2, b = H(k, k + 1).x, c = H(k + 1, k).x;
      const T im = sqrt(fabs(b)) * sqrt(fabs(c)) * sqrt(fmax((T)0, 1 + (mid / b) * (mid / c)));
      const Z value = (Z)((H(k, k).x + H(k + 1, k + 1).x) / 2, im);
      x[k] = value - H(k + 1, k + 1), x[k + 1] = H(k + 1, k);
      substitute(h, n, k, k + 2, value, least, x);
      write_vector(v, n, k + 2, x, true, vectors, k);
      for (long i = 0; i < n; ++i) vectors[i * n + k + 1] = conj(vectors[i * n + k]);
      values[k] = value, values[k + 1] = conj(value);
      ++k;
      continue;
    }
    values[k] = H(k, k);
    x[k] = (Z)(1, 0);
    substitute(h, n, k, k + 1, H(k, k), least, x);
    write_vector(v, n, k + 1, x, PARTS == 2, vectors, k);
  }
}
"""


def _values(a: torch.Tensor) -> torch.Tensor:
    return a.new_empty((a.shape[0], a.shape[1], 2))


def _vectors(a: torch.Tensor) -> torch.Tensor:
    return a.new_empty((a.shape[0], a.shape[1], a.shape[1], 2))


def _work(a: torch.Tensor) -> torch.Tensor:
    return a.new_empty((a.shape[0], 2, a.shape[1], a.shape[1], 2))


def _macros(a: torch.Tensor) -> dict[str, Any]:
    name, limits = ("double" if a.dtype == torch.float64 else "float"), torch.finfo(a.dtype)
    return {
        "T": a.dtype,
        "Z": f"{name}2",
        "PARTS": a.shape[3],
        "LARGEST": a.shape[1],
        "EPSILON": limits.eps,
        "SMALLEST": limits.tiny,
        "MOST_STEPS": STEPS,
    }


EIG = kernel(
    "ocl::eig",
    f"{ARITHMETIC}{HESSENBERG}#if PARTS == 2\n{COMPLEX_STEPS}#else\n{REAL_STEPS}#endif\n{VECTORS}",
    kernel="eig",
    outputs={"values": _values, "vectors": _vectors, "work": _work},
    values={"n": lambda a: a.shape[1], "batch": lambda a: a.shape[0]},
    global_size=lambda a: a.shape[0],
    defines=_macros,
)
