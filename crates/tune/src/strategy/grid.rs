//! Every combination once, in order.

use crate::space::Space;
use crate::strategy::{Choice, Observed};

pub(crate) fn choose(space: &Space, observed: &Observed) -> Choice {
    match space.grid().find(|point| !observed.is_tried(point)) {
        Some(point) => Choice::Point(point),
        None => Choice::NothingLeft,
    }
}
