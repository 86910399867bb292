/** Raw features of one image, which must not leave the device. */
export {};
