//! Linear algebra for a few hundred results: symmetric positive definite matrices.

/// A dot product in eight accumulators, which the compiler vectorises.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a_chunks, b_chunks) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a_chunks
        .remainder()
        .iter()
        .zip(b_chunks.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// The lower triangle L of a matrix K = L L', row by row, each of n numbers.
#[derive(Debug, Clone)]
pub(crate) struct Cholesky {
    n: usize,
    l: Vec<f64>,
}

impl Cholesky {
    /// Decomposes a symmetric matrix; reads only its lower half. `None` if it is not positive definite.
    pub fn new(mut k: Vec<f64>, n: usize) -> Option<Self> {
        for i in 0..n {
            for j in 0..=i {
                let (before, row) = k.split_at_mut(i * n);
                if j < i {
                    let other = &before[j * n..j * n + j + 1];
                    row[j] = (row[j] - dot(&row[..j], &other[..j])) / other[j];
                } else {
                    let left = row[i] - dot(&row[..i], &row[..i]);
                    if left.is_nan() || left <= 0.0 {
                        return None;
                    }
                    row[i] = left.sqrt();
                }
            }
        }
        Some(Self { n, l: k })
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.l[i * self.n..i * self.n + i + 1]
    }

    /// Solves L x = b in place.
    pub fn forward(&self, x: &mut [f64]) {
        for i in 0..self.n {
            let row = self.row(i);
            x[i] = (x[i] - dot(&row[..i], &x[..i])) / row[i];
        }
    }

    /// Solves L' x = b in place.
    pub fn backward(&self, x: &mut [f64]) {
        for i in (0..self.n).rev() {
            let row = self.row(i);
            x[i] /= row[i];
            let (solved, at) = (&mut x[..=i], i);
            let (rest, last) = solved.split_at_mut(at);
            for (x, l) in rest.iter_mut().zip(row) {
                *x -= l * last[0];
            }
        }
    }

    /// Half the logarithm of the determinant of K.
    pub fn half_log_det(&self) -> f64 {
        (0..self.n).map(|i| self.row(i)[i].ln()).sum()
    }

    /// The lower half of K^-1.
    pub fn inverse(&self) -> Vec<f64> {
        let n = self.n;
        // Row i holds column i of L^-1, which begins at i.
        let mut columns = vec![0.0; n * n];
        for i in 0..n {
            let column = &mut columns[i * n..(i + 1) * n];
            column[i] = 1.0 / self.l[i * n + i];
            for k in i + 1..n {
                let row = self.row(k);
                column[k] = -dot(&row[i..k], &column[i..k]) / row[k];
            }
        }
        let mut inverse = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..=i {
                inverse[i * n + j] = dot(&columns[i * n + i..(i + 1) * n], &columns[j * n + i..(j + 1) * n]);
            }
        }
        inverse
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K = A A' + I by the definition of a product, and what solving and inverting are for.
    #[test]
    fn solves_and_inverts() {
        let n = 13;
        let a: Vec<f64> = (0..n * n)
            .map(|i| ((i * 7919) % 101) as f64 / 101.0 - 0.5)
            .collect();
        let mut k = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..n {
                k[i * n + j] =
                    dot(&a[i * n..(i + 1) * n], &a[j * n..(j + 1) * n]) + f64::from(u8::from(i == j));
            }
        }
        let cholesky = Cholesky::new(k.clone(), n).unwrap();
        let inverse = cholesky.inverse();
        for i in 0..n {
            let mut x = vec![0.0; n];
            x[i] = 1.0;
            cholesky.forward(&mut x);
            cholesky.backward(&mut x);
            for j in 0..n {
                assert!((dot(&k[j * n..(j + 1) * n], &x) - f64::from(u8::from(i == j))).abs() < 1e-10);
                if j <= i {
                    assert!((x[j] - inverse[i * n + j]).abs() < 1e-10);
                }
            }
        }
        assert!(
            Cholesky::new(vec![1.0, 0.0, 2.0, 1.0], 2).is_none(),
            "not positive"
        );
    }
}
