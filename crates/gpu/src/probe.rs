//! The smallest kernel. Opening a device runs it, to check that kernels are compiled and run, and write the
//! right results.

use crate::queue::{Buffer, queued, read};
use cubecl::bytes::Bytes;
use cubecl::prelude::*;

/// The initial contents of the buffer: different from all results.
const POISON: u32 = 0xA5A5_A5A5;

/// The number of results.
const LEN: u32 = 1024;

/// Units of a cube.
const UNITS: u32 = 64;

#[cube(launch)]
fn fill(numbers: &mut [u32], factor: u32) {
    let at = CUBE_POS_X * CUBE_DIM_X + UNIT_POS;
    if (at as usize) < numbers.len() {
        numbers[at as usize] = factor * at;
    }
}

/// Runs the kernel and compares its results.
pub(crate) fn probe(client: &Client) -> Result<(), String> {
    let factor = 3;
    let launch = || {
        let buffer = Buffer {
            handle: client.create(Bytes::from_elems(vec![POISON; LEN as usize])),
            len: LEN as usize,
        };
        let cubes = CubeCount::Static(LEN / UNITS, 1, 1);
        fill::launch(client, cubes, CubeDim::new_1d(UNITS), buffer.arg(), factor);
        client.check([&buffer.handle])?;
        Ok(buffer)
    };
    let buffer = queued(client, launch)?;
    let bytes = read(client, &buffer)?;
    let numbers = u32::from_bytes(&bytes);
    let wrong = (0..LEN).zip(numbers).find(|(at, number)| **number != factor * at);
    match wrong {
        None => Ok(()),
        Some((_, &POISON)) => Err("it was queued and has written nothing".to_owned()),
        Some((at, number)) => Err(format!(
            "number {at} of what it wrote is {number} and not {}",
            factor * at
        )),
    }
}
