//! The networks: ResNet-18, -34, -50, -101 and -152 as torchvision builds them.
//!
//! The modules are named and shaped so that a parameter's path in the module tree *is* torchvision's key
//! (`layer1.0.conv1.weight`, `layer2.0.downsample.1.running_var`, `fc.bias`), and every array has PyTorch's
//! layout. So weights, optimiser state and gradients are loaded and saved by name without a table of
//! renamings.

mod init;
mod layers;
mod resnet;

pub use layers::{BatchNorm, Conv, Linear};
pub use resnet::{Arch, Block, ResNet, UnknownArch};
