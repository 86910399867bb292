/** Raw features of one image, which must not leave the device. */

/** How descriptors were normalized before they were quantized: L2, or L1 and a square root (RootSIFT). */
export type Normalization = "L2" | "L1_ROOT";

/** Keypoints of one image with their raw descriptors; they can be inverted into the image, and stay on the device. */
export interface Features {
  /** Size of the upright image in pixels. */
  width: number;
  height: number;
  /** Number of features. */
  count: number;
  /** x and y of each keypoint, in pixels from the image's top-left corner; pixel centers lie at +0.5. */
  keypoints: Float32Array;
  /** 128 values of each feature: COLMAP's SIFT, round(512 x) of the normalized descriptor, at most 255. */
  descriptors: Uint8Array;
  normalization: Normalization;
}
