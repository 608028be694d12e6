//! AutoAugment, RandAugment, TrivialAugmentWide and AugMix: which change of an image is drawn, and how strong it is.
//!
//! Names, magnitudes, signs and policies are those of `torchvision.transforms.v2`, version 0.29 (`_auto_augment.py`).

use crate::op::{AugMix, AutoAugment, Fill, Interpolation, Policy, RandAugment, TrivialAugmentWide};
use crate::rng::Draws;
use crate::step::{Chain, Mixed, Step, Transform};

/// A change of an image, with torchvision's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

use Change::*;

/// What RandAugment and TrivialAugmentWide draw from, each as often as the others.
const CHANGES: [Change; 14] = [
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
];

/// The largest magnitudes.
struct Most {
    shear: f64,
    /// Pixels across and down.
    translate: [f64; 2],
    degrees: f64,
    /// Of brightness, colour, contrast and sharpness: how far from 1.
    factor: f64,
    /// Bits that the weakest posterising keeps.
    most_bits: f32,
    /// Bits that the strongest one takes away of these.
    bits: f64,
}

impl Most {
    /// Of AutoAugment and RandAugment.
    fn usual(width: u32, height: u32) -> Most {
        Most {
            shear: 0.3,
            translate: [width, height].map(|side| 150.0 / 331.0 * f64::from(side)),
            degrees: 30.0,
            factor: 0.9,
            most_bits: 8.0,
            bits: 4.0,
        }
    }

    /// Of AugMix.
    fn mixed(width: u32, height: u32) -> Most {
        Most {
            translate: [width, height].map(|side| f64::from(side) / 3.0),
            most_bits: 4.0,
            ..Most::usual(width, height)
        }
    }

    fn wide() -> Most {
        Most {
            shear: 0.99,
            translate: [32.0; 2],
            degrees: 135.0,
            factor: 0.99,
            most_bits: 8.0,
            bits: 6.0,
        }
    }

    /// The magnitude number `bin` of `bins`, without its sign; a change without a magnitude has 0.
    fn magnitude(&self, change: Change, bin: u32, bins: u32) -> f64 {
        let up_to = |most| evenly(0.0, most, bin, bins);
        match change {
            Identity | AutoContrast | Equalize | Invert => 0.0,
            ShearX | ShearY => up_to(self.shear),
            TranslateX => up_to(self.translate[0]),
            TranslateY => up_to(self.translate[1]),
            Rotate => up_to(self.degrees),
            Brightness | Color | Contrast | Sharpness => up_to(self.factor),
            Posterize => {
                let taken = bin as f32 / (f64::from(bins - 1) / self.bits) as f32;
                f64::from((self.most_bits - taken).round_ties_even())
            }
            Solarize => evenly(1.0, 0.0, bin, bins),
        }
    }
}

/// `torch.linspace` of 32-bit floats, which counts the second half from its end. It rounds a product and its sum once, as
/// torch does on processors with such an instruction: of TrivialAugmentWide's 31 translations up to 32 pixels the middle one
/// is a hair below 16, and so 15 pixels.
fn evenly(from: f64, to: f64, bin: u32, bins: u32) -> f64 {
    let (from, to) = (from as f32, to as f32);
    let step = (to - from) / (bins - 1) as f32;
    f64::from(match bin < bins / 2 {
        true => step.mul_add(bin as f32, from),
        false => (-step).mul_add((bins - 1 - bin) as f32, to),
    })
}

impl Change {
    fn has_sign(self) -> bool {
        matches!(
            self,
            ShearX | ShearY | TranslateX | TranslateY | Rotate | Brightness | Color | Contrast | Sharpness
        )
    }

    /// The change as a step; none if it changes nothing.
    fn step(self, magnitude: f64, interpolation: Interpolation, fill: Fill) -> Option<Step> {
        let still = Transform {
            angle: 0.0,
            translate: [0, 0],
            scale: 1.0,
            shear: [0.0, 0.0],
            interpolation,
            center: None,
            fill,
        };
        let degrees = magnitude.atan().to_degrees();
        let sheared = |shear| {
            Step::Affine(Transform {
                shear,
                center: Some([0.0, 0.0]),
                ..still
            })
        };
        // Python's `int` cuts the fraction off.
        let moved = |translate| Step::Affine(Transform { translate, ..still });
        let factor = 1.0 + magnitude;
        Some(match self {
            Identity => return None,
            ShearX => sheared([degrees, 0.0]),
            ShearY => sheared([0.0, degrees]),
            TranslateX => moved([magnitude as i32, 0]),
            TranslateY => moved([0, magnitude as i32]),
            Rotate => Step::Rotate(crate::step::Rotate {
                angle: magnitude,
                interpolation,
                expand: false,
                center: None,
                fill,
            }),
            Brightness => Step::Brightness { factor },
            Color => Step::Saturation { factor },
            Contrast => Step::Contrast { factor },
            Sharpness => Step::Sharpness { factor },
            Posterize => Step::Posterize {
                bits: magnitude as u32,
            },
            Solarize => Step::Solarize {
                threshold: 255.0 * magnitude,
            },
            AutoContrast => Step::AutoContrast,
            Equalize => Step::Equalize,
            Invert => Step::Invert,
        })
    }
}

/// The change with its magnitude's sign drawn.
fn signed(change: Change, magnitude: f64, draws: &mut Draws) -> f64 {
    if change.has_sign() && draws.chance(0.5) {
        -magnitude
    } else {
        magnitude
    }
}

impl RandAugment {
    /// What is done to an image of `width` x `height`; no step changes its size.
    pub(crate) fn steps(&self, draws: &mut Draws, width: u32, height: u32) -> Vec<Step> {
        let most = Most::usual(width, height);
        let one = |_| {
            let change = CHANGES[draws.below(CHANGES.len() as u32) as usize];
            let magnitude = most.magnitude(change, self.magnitude, self.num_magnitude_bins);
            change.step(signed(change, magnitude, draws), self.interpolation, self.fill)
        };
        (0..self.num_ops).filter_map(one).collect()
    }
}

/// What AugMix draws from; the first nine without [`AugMix::all_ops`].
const MIXED: [Change; 13] = [
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Brightness,
    Color,
    Contrast,
    Sharpness,
];

impl AugMix {
    /// The number of magnitudes there are.
    pub(crate) const BINS: u32 = 10;

    /// What is done to an image of `width` x `height`, which keeps its size.
    pub(crate) fn step(&self, draws: &mut Draws, width: u32, height: u32) -> Step {
        let most = Most::mixed(width, height);
        let changes = &MIXED[..if self.all_ops { 13 } else { 9 }];
        let of_image = draws.dirichlet(self.alpha, 2)[0];
        let shares = draws.dirichlet(self.alpha, self.mixture_width as usize);
        let chains = shares.into_iter().map(|share| {
            let depth = u32::try_from(self.chain_depth).unwrap_or_else(|_| 1 + draws.below(3));
            let one = |_| {
                let change = changes[draws.below(changes.len() as u32) as usize];
                let magnitude = most.magnitude(change, draws.below(self.severity), Self::BINS);
                change.step(signed(change, magnitude, draws), self.interpolation, self.fill)
            };
            Chain {
                share: (share * (1.0 - of_image)) as f32,
                steps: (0..depth).filter_map(one).collect(),
            }
        });
        Step::Mix(Mixed {
            chains: chains.collect(),
            share: of_image as f32,
        })
    }
}

impl TrivialAugmentWide {
    /// What is done to an image: one step, or none.
    pub(crate) fn step(&self, draws: &mut Draws) -> Option<Step> {
        let bins = self.num_magnitude_bins;
        let change = CHANGES[draws.below(CHANGES.len() as u32) as usize];
        let magnitude = Most::wide().magnitude(change, draws.below(bins), bins);
        change.step(signed(change, magnitude, draws), self.interpolation, self.fill)
    }
}

impl AutoAugment {
    /// What is done to an image of `width` x `height`: at most two steps, none of which changes its size.
    pub(crate) fn steps(&self, draws: &mut Draws, width: u32, height: u32) -> Vec<Step> {
        let most = Most::usual(width, height);
        let pairs = match self.policy {
            Policy::Imagenet => &IMAGENET,
            Policy::Cifar10 => &CIFAR10,
            Policy::Svhn => &SVHN,
        };
        let pair = &pairs[draws.below(pairs.len() as u32) as usize];
        let one = |&(change, p, bin): &(Change, f64, u32)| {
            if !draws.chance(p) {
                return None;
            }
            let magnitude = most.magnitude(change, bin, 10);
            change.step(signed(change, magnitude, draws), self.interpolation, self.fill)
        };
        pair.iter().filter_map(one).collect()
    }
}

/// Two changes, each with its probability and the number of its magnitude of 10 (0 where it has none).
type Pair = [(Change, f64, u32); 2];

const IMAGENET: [Pair; 25] = [
    [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
    [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
    [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
    [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
    [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
    [(Rotate, 0.8, 8), (Color, 0.4, 0)],
    [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
    [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Rotate, 0.8, 8), (Color, 1.0, 2)],
    [(Color, 0.8, 8), (Solarize, 0.8, 7)],
    [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
    [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
    [(Color, 0.4, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
];

const CIFAR10: [Pair; 25] = [
    [(Invert, 0.1, 0), (Contrast, 0.2, 6)],
    [(Rotate, 0.7, 2), (TranslateX, 0.3, 9)],
    [(Sharpness, 0.8, 1), (Sharpness, 0.9, 3)],
    [(ShearY, 0.5, 8), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.5, 0), (Equalize, 0.9, 0)],
    [(ShearY, 0.2, 7), (Posterize, 0.3, 7)],
    [(Color, 0.4, 3), (Brightness, 0.6, 7)],
    [(Sharpness, 0.3, 9), (Brightness, 0.7, 9)],
    [(Equalize, 0.6, 0), (Equalize, 0.5, 0)],
    [(Contrast, 0.6, 7), (Sharpness, 0.6, 5)],
    [(Color, 0.7, 7), (TranslateX, 0.5, 8)],
    [(Equalize, 0.3, 0), (AutoContrast, 0.4, 0)],
    [(TranslateY, 0.4, 3), (Sharpness, 0.2, 6)],
    [(Brightness, 0.9, 6), (Color, 0.2, 8)],
    [(Solarize, 0.5, 2), (Invert, 0.0, 0)],
    [(Equalize, 0.2, 0), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.2, 0), (Equalize, 0.6, 0)],
    [(Color, 0.9, 9), (Equalize, 0.6, 0)],
    [(AutoContrast, 0.8, 0), (Solarize, 0.2, 8)],
    [(Brightness, 0.1, 3), (Color, 0.7, 0)],
    [(Solarize, 0.4, 5), (AutoContrast, 0.9, 0)],
    [(TranslateY, 0.9, 9), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.9, 0), (Solarize, 0.8, 3)],
    [(Equalize, 0.8, 0), (Invert, 0.1, 0)],
    [(TranslateY, 0.7, 9), (AutoContrast, 0.9, 0)],
];

const SVHN: [Pair; 25] = [
    [(ShearX, 0.9, 4), (Invert, 0.2, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.6, 0), (Solarize, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (AutoContrast, 0.8, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.4, 0)],
    [(ShearY, 0.9, 5), (Solarize, 0.2, 6)],
    [(Invert, 0.9, 0), (AutoContrast, 0.8, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Solarize, 0.3, 3)],
    [(ShearY, 0.8, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.9, 0), (TranslateY, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Contrast, 0.3, 3), (Rotate, 0.8, 4)],
    [(Invert, 0.8, 0), (TranslateY, 0.0, 2)],
    [(ShearY, 0.7, 6), (Solarize, 0.4, 8)],
    [(Invert, 0.6, 0), (Rotate, 0.8, 4)],
    [(ShearY, 0.3, 7), (TranslateX, 0.9, 3)],
    [(ShearX, 0.1, 6), (Invert, 0.6, 0)],
    [(Solarize, 0.7, 2), (TranslateY, 0.6, 7)],
    [(ShearY, 0.8, 4), (Invert, 0.8, 0)],
    [(ShearX, 0.7, 9), (TranslateY, 0.8, 3)],
    [(ShearY, 0.8, 5), (AutoContrast, 0.7, 0)],
    [(ShearX, 0.7, 2), (Invert, 0.1, 0)],
];
