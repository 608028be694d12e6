//! A small encoder of random coefficients: any sampling factors, interleaved or not, with or without restart
//! markers.

/// A marker segment.
pub fn segment(marker: u8, body: &[u8]) -> Vec<u8> {
    [
        &[0xFF, marker],
        (body.len() as u16 + 2).to_be_bytes().as_slice(),
        body,
    ]
    .concat()
}

/// Adobe's segment, with a colour transform.
pub fn adobe(transform: u8) -> Vec<u8> {
    segment(0xEE, &[b"Adobe\0\x64\0\0\0\0".as_slice(), &[transform]].concat())
}

/// What to write.
#[derive(Debug, Clone)]
pub struct Spec {
    pub width: u16,
    pub height: u16,
    /// Horizontal and vertical sampling factors of each component.
    pub factors: Vec<(u8, u8)>,
    /// MCUs between restart markers; 0 for none.
    pub restart_interval: u16,
    /// One scan for all components.
    pub interleaved: bool,
    /// The colour transform in an Adobe marker.
    pub adobe: Option<u8>,
    /// Quantisation steps of 16 bits.
    pub wide_steps: bool,
    pub seed: u64,
}

/// A file, where its last scan's data ends, and of each component the blocks in their order, with the
/// coefficients in the order of coding.
pub struct Written {
    pub bytes: Vec<u8>,
    pub data_end: usize,
    pub blocks: [Vec<[i16; 64]>; 4],
}

impl Spec {
    pub fn write(&self) -> Written {
        let mut writer = Writer {
            out: vec![0xFF, 0xD8],
            bits: 0,
            count: 0,
            state: self.seed | 1,
            blocks: Default::default(),
        };
        if let Some(transform) = self.adobe {
            writer.out.extend(adobe(transform));
        }
        let steps = (0..64).map(|i| 1 + i / 4);
        match self.wide_steps {
            true => writer.segment(
                0xDB,
                &[0x10]
                    .into_iter()
                    .chain(steps.flat_map(|s| [0, s]))
                    .collect::<Vec<u8>>(),
            ),
            false => writer.segment(0xDB, &[0].into_iter().chain(steps).collect::<Vec<u8>>()),
        }
        let [h1, h0] = self.height.to_be_bytes();
        let [w1, w0] = self.width.to_be_bytes();
        let mut frame = vec![8, h1, h0, w1, w0, self.factors.len() as u8];
        for (i, (h, v)) in (1..).zip(&self.factors) {
            frame.extend([i, h << 4 | v, 0]);
        }
        writer.segment(0xC1, &frame);
        // All DC codes have 4 bits, all AC codes 8.
        let dc: Vec<u8> = (0..12).collect();
        let mut lengths = [0; 16];
        lengths[3] = dc.len() as u8;
        writer.segment(0xC4, &[[0].as_slice(), &lengths, &dc].concat());
        let ac = ac_symbols();
        let mut lengths = [0; 16];
        lengths[7] = ac.len() as u8;
        writer.segment(0xC4, &[[0x10].as_slice(), &lengths, &ac].concat());
        if self.restart_interval > 0 {
            writer.segment(0xDD, &self.restart_interval.to_be_bytes());
        }
        let all: Vec<usize> = (0..self.factors.len()).collect();
        match self.interleaved {
            true => self.write_scan(&mut writer, &all),
            false => all.iter().for_each(|i| self.write_scan(&mut writer, &[*i])),
        }
        let data_end = writer.out.len();
        writer.out.extend([0xFF, 0xD9]);
        Written {
            bytes: writer.out,
            data_end,
            blocks: writer.blocks,
        }
    }

    fn write_scan(&self, writer: &mut Writer, members: &[usize]) {
        let mut header = vec![members.len() as u8];
        members.iter().for_each(|&i| header.extend([i as u8 + 1, 0]));
        header.extend([0, 63, 0]);
        writer.segment(0xDA, &header);
        let h_max = self.factors.iter().map(|f| f.0).max().expect("a component");
        let v_max = self.factors.iter().map(|f| f.1).max().expect("a component");
        let blocks = |size: u16, factor: u8, max: u8| {
            (usize::from(size) * usize::from(factor))
                .div_ceil(usize::from(max))
                .div_ceil(8)
        };
        let (mcus, places): (usize, Vec<usize>) = match members {
            [one] => {
                let (h, v) = self.factors[*one];
                (
                    blocks(self.width, h, h_max) * blocks(self.height, v, v_max),
                    vec![0],
                )
            }
            _ => {
                let of = |i: &usize| usize::from(self.factors[*i].0 * self.factors[*i].1);
                let places = members
                    .iter()
                    .enumerate()
                    .flat_map(|(m, i)| vec![m; of(i)])
                    .collect();
                (
                    blocks(self.width, 1, h_max) * blocks(self.height, 1, v_max),
                    places,
                )
            }
        };
        let mut last = [0; 4];
        for mcu in 0..mcus {
            let interval = usize::from(self.restart_interval);
            if interval > 0 && mcu > 0 && mcu % interval == 0 {
                writer.pad();
                writer.out.extend([0xFF, 0xD0 + (mcu / interval - 1) as u8 % 8]);
                last = [0; 4];
            }
            for &member in &places {
                let block = writer.block(&mut last[member]);
                writer.blocks[members[member]].push(block);
            }
        }
        writer.pad();
    }
}

/// Runs 0..=15 with sizes 1..=10, the end of a block and a run of 16 zeros.
fn ac_symbols() -> Vec<u8> {
    let mut symbols: Vec<u8> = (0..16)
        .flat_map(|run| (1..=10).map(move |size| run << 4 | size))
        .collect();
    symbols.extend([0x00, 0xF0]);
    symbols
}

struct Writer {
    out: Vec<u8>,
    bits: u64,
    count: u32,
    state: u64,
    blocks: [Vec<[i16; 64]>; 4],
}

impl Writer {
    fn segment(&mut self, marker: u8, body: &[u8]) {
        self.out.extend(segment(marker, body));
    }

    fn random(&mut self, limit: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % limit
    }

    fn put(&mut self, value: u64, count: u32) {
        self.bits = self.bits << count | value;
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.bits >> self.count) as u8;
            self.out.push(byte);
            if byte == 0xFF {
                self.out.push(0);
            }
        }
    }

    /// Fills up the last byte with ones.
    fn pad(&mut self) {
        let missing = (8 - self.count) % 8;
        self.put((1 << missing) - 1, missing);
    }

    /// The magnitude bits of a value.
    fn magnitude(&mut self, value: i64, size: u32) {
        let bits = if value < 0 { value + (1 << size) - 1 } else { value };
        self.put(bits as u64, size);
    }

    fn block(&mut self, last: &mut i64) -> [i16; 64] {
        let mut block = [0; 64];
        let dc = self.random(1600) as i64 - 800;
        let difference = dc - *last;
        *last = dc;
        block[0] = dc as i16;
        let size = 64 - difference.unsigned_abs().leading_zeros();
        self.put(size.into(), 4);
        self.magnitude(difference, size);
        let symbols = ac_symbols();
        let code = |symbol: u8| symbols.iter().position(|&s| s == symbol).expect("a symbol") as u64;
        let most = [2, 12, 64][self.random(3) as usize];
        let mut k = 1;
        while k < most {
            let longest = if self.random(8) == 0 { 30 } else { 3 };
            let run = self.random(longest);
            if k + run > 63 {
                break;
            }
            if run >= 16 {
                self.put(code(0xF0), 8);
            }
            let value = (self.random(if k < 6 { 200 } else { 20 }) as i64 - if k < 6 { 100 } else { 10 }) | 1;
            let size = 64 - value.unsigned_abs().leading_zeros();
            self.put(code(((run % 16) << 4) as u8 | size as u8), 8);
            self.magnitude(value, size);
            block[(k + run) as usize] = value as i16;
            k += run + 1;
        }
        if k < 64 {
            self.put(code(0), 8);
        }
        block
    }
}
